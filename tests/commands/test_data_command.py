"""`nnlo data` on handmade stores at the paths of the workflow."""

import numpy as np
import pytest
from helpers.store_folder import store_folder
from helpers.synthetic_store import handmade
from PIL import Image

from nnlo_lib.config import Experiment
from nnlo_lib.workflow.data_overview import print_data_overview

LABELS = np.arange(200) % 10


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def images(count=200):
    return np.arange(count * 64).reshape(count, 1, 8, 8).astype(np.uint8) % 17


def experiment(**changes):
    return Experiment.model_validate(
        {
            "name": "study",
            "data": {"format": "npz", "validation": 0.1},
            "parallel": {"ranks": 5},
            "runs": {
                "shared": {},
                "own": {"data": {"partition": {"name": "by_class"}}},
                "served": {"algorithm": {"name": "downpour"}, "data": {"partition": {"name": "by_class"}}},
            },
            **changes,
        }
    )


def test_shows_store_workers_and_picture(here, capsys):
    handmade(here / store_folder(format="npz"), {"train": (images(), LABELS)}, dataset="digits", scale=1 / 16)
    print_data_overview(experiment(), ["shared", "own", "served"], 0)
    text = capsys.readouterr().out
    assert "samples   train 200" in text
    assert "run shared: 180 training samples, 20 validation samples; all workers share" in text
    assert "run own: 180 training samples, 20 validation samples; each of 5 workers has its own" in text
    assert "run served: 180 training samples, 20 validation samples; each of 4 workers has its own" in text
    assert text.endswith("\ncontact sheet: results/study/data-digits.png\n")
    with Image.open(here / "results/study/data-digits.png") as picture:
        assert picture.width > 10 * 96


def test_only_the_named_run_and_with_folds_the_first(here, capsys):
    handmade(here / store_folder(format="npz"), {"train": (images(), LABELS)}, dataset="digits")
    print_data_overview(experiment(folds=4), ["own"], 7)
    text = capsys.readouterr().out
    assert "run own: 150 training samples, 50 validation samples" in text
    assert "shared" not in text
    assert text.count("data set  digits") == 1


def test_nothing_is_staged(here):
    handmade(here / store_folder(format="npz"), {"train": (images(), LABELS)}, dataset="digits")
    staging = {"format": "npz", "stage_to": str(here / "local")}
    print_data_overview(experiment(data=staging), ["shared"], 0)
    assert not (here / "local").exists()


def test_each_store_is_told_once(here, capsys):
    handmade(here / store_folder(format="npz"), {"train": (images(), LABELS)}, dataset="digits")
    handmade(here / store_folder("mnist", format="npz"), {"train": (images(), LABELS)}, dataset="mnist")
    runs = {"a": {}, "b": {"data": {"dataset": "mnist"}}, "c": {"train": {"epochs": 3}}}
    print_data_overview(experiment(runs=runs), ["a", "b", "c"], 0)
    told = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    heads = [line for line in told if line.startswith(("data set", "run "))]
    assert heads == ["data set  digits", "run a", "run c", "data set  mnist", "run b"]
    assert sorted(path.name for path in here.glob("results/study/*")) == ["data-digits.png", "data-mnist.png"]


def test_samples_that_are_no_images(here, capsys):
    handmade(
        here / store_folder(format="npz"),
        {"train": (np.zeros((200, 54), np.float32), LABELS)},
        dataset="digits",
    )
    print_data_overview(experiment(), ["shared"], 0)
    assert capsys.readouterr().out.endswith("no contact sheet: the samples of digits are not images\n")
    assert not (here / "results").exists()


def test_store_that_is_not_there_yet_is_made(here, capsys):
    print_data_overview(experiment(), ["shared"], 0)
    assert (here / store_folder(format="npz") / "manifest.json").exists()
    assert "train 1,442, test 355" in capsys.readouterr().out
