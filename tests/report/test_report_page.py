"""The HTML of the page is well-formed, self-contained and reproducible; damaged inputs are named."""

import re

import numpy as np
import pandas as pd
import pytest
from helpers.html_page import HOSTILE, check
from helpers.nnlo_command import nnlo
from helpers.synthetic_runs import change_json
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.sections.resources import _without_breaks


def test_the_page_holds_the_experiment_file_and_is_the_same_bytes_again(fake, report):
    page = report(fake.quickstart())
    first, found = page.read_bytes(), check(page)
    for said in ("misclassified, most often", "0123456789ab", "2.13.0+cpu", fake.file.read_text()):
        assert said in found.text
    assert f"nnlo all {fake.file}" in found.text
    assert report(fake).read_bytes() == first


def test_curves_show_the_balanced_accuracy_that_ranks_the_runs_or_the_page_says_why_not(fake, report):
    for run in "ab":
        change_json(fake.job(run) / "evaluation.json", balanced_accuracy=0.5)
    text, figure = check(report(fake)).text, "Validation balanced accuracy against training time"
    assert ("No epoch measured the balanced accuracy, which ranks" in text, figure in text) == (True, False)
    assert "standard deviation" not in text, "there is one seed"
    for folder in fake.folders:
        fake.add_to_history(folder, val_balanced_accuracy=0.5)
    text = check(report(fake)).text
    assert ("No epoch measured" in text, figure in text) == (False, True)


SHAPES = {  # arguments of each job
    "one": [{}],
    "one epoch": [{"epochs": 1}],
    "folds": [
        {"run": run, "seed": seed, "fold": fold, "epochs": 2} for run in "ab" for seed in (1, 2) for fold in range(4)
    ],
    "some validation": [{"run": "a", "validation": False}, {"run": "b"}],
    "no accuracy": [{"run": "a", "accuracy": False}, {"run": "b", "accuracy": False, "validation": False}],
    "many runs": [
        {"run": f"run-{number}", "seed": seed, "epochs": 2, "level": 0.9 + number / 200}
        for number in range(6) for seed in (1, 2)
    ],
    "many classes": [{"classes": 100}],
    "unequal lengths": [{"seed": 1, "epochs": 20}, {"seed": 2, "epochs": 5}],
    "long": [{"seed": seed, "epochs": 1000} for seed in range(1, 9)],
}  # fmt: skip


@pytest.mark.parametrize("jobs", SHAPES.values(), ids=SHAPES)
def test_pages_of_all_shapes_are_well_formed(fake, report, jobs):
    for given in jobs:
        fake.job(**given)
    check(report(fake))


def test_a_page_of_many_runs_shows_the_matrices_of_the_best(fake, report):
    for number in range(13):
        fake.job(f"run-{number}", epochs=2, level=0.3 + number / 20)
    text = report(fake).read_text()
    shown = [number for number in range(13) if f'aria-label="confusion matrix of run-{number}"' in text]
    assert shown == list(range(7, 13))


def test_a_loss_that_is_not_a_number_is_no_text_of_the_page(fake, report):
    folder = fake.job()
    history = (folder / "history.csv").read_text()
    (folder / "history.csv").write_text(re.sub(r"(?m)^(7(?:,[^,]*){5}),[^,]*", r"\1,nan", history))
    change_json(folder / "evaluation.json", loss=float("nan"))
    assert "nan" not in check(report(fake)).text


def test_hostile_names_are_only_text(fake, report):
    folder = fake.job()
    fake.attempts(folder, (HOSTILE, 4, 0, 30, 20), ("finished", 4, 20, 820, 820))
    fake.change(
        folder, run=HOSTILE, experiment=HOSTILE, hosts=[HOSTILE], code_version=HOSTILE, config={HOSTILE: HOSTILE},
        packages={HOSTILE: HOSTILE}, bytes_sent={HOSTILE: 5}, model={"name": HOSTILE, "layers": [{"name": HOSTILE}]},
    )  # fmt: skip
    change_json(folder / "evaluation.json", confusion=[[1, 1], [0, 1]], classes=[HOSTILE, "b"])
    fake.file.write_text(f"name: {HOSTILE}\n</code></pre>{{{{ 7 * 7 }}}}")
    found = check(report(fake))
    assert found.text.count(HOSTILE) > 10
    assert "{{ 7 * 7 }}" in found.text


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "absent": lambda path: path.unlink(),
    "garbled": lambda path: path.write_bytes(b"\xff\xfe\x00\n"),
}


@pytest.mark.parametrize("name", ["history.csv", "summary.json", "evaluation.json"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named(fake, report, name, damage):
    fake.job(seed=1)
    damage(fake.job(seed=2) / name)
    with pytest.raises(UserError, match=rf"seed-2/{name}"):
        report(fake)
    assert not (fake.root / "report.html").exists()


def test_a_file_without_a_needed_row_or_key_and_a_job_that_occurs_twice_are_named(fake, report):
    folder = fake.job()
    history = folder / "history.csv"
    whole = history.read_text()
    history.write_text("\n".join(whole.split("\n")[:4]) + "\n")
    with pytest.raises(UserError, match=r"history.csv ends before epoch 20"):
        report(fake)
    history.write_text(whole)
    fake.folders.append(folder)
    with pytest.raises(UserError, match="the same run, seed and fold"):
        report(fake)
    (folder / "summary.json").write_text('{"run": "a", "seed": 1}')
    with pytest.raises(UserError, match=r"summary.json lacks config, seconds"):
        report(fake)


def test_the_commands_write_a_page_or_a_message_and_a_failed_one_leaves_the_old_page(fake):
    summary, page = fake.root / "summary.csv", fake.root / "report.html"
    jobs = list(map(str, fake.quickstart().folders))
    files = ("--experiment-file", str(fake.file), "--summary", str(summary))
    commands = [
        ("task", "aggregate", "--output", str(summary), *jobs),
        ("task", "report", "--output", str(page), *files, *jobs),
    ]
    for command in commands:
        done = nnlo(*command)
        assert (done.returncode or 0, done.stderr) == (0, "")
    assert len(summary.read_text().splitlines()) == 7
    old = page.read_bytes()
    (fake.folders[0] / "evaluation.json").write_text('{"split": "te')
    for command in commands:
        done = nnlo(*command)
        assert done.returncode == 2
        assert "evaluation.json is cut short or damaged" in done.stderr
    assert page.read_bytes() == old
    left = {path.name for path in fake.root.iterdir() if path.is_file()}
    assert left == {fake.file.name, summary.name, page.name}


@pytest.mark.parametrize(
    ("split", "heading"),
    [
        ("test", "the test split"),
        ("validation", "the validation split"),
        ("held back", "the samples held back for validation"),
    ],
)
def test_the_page_says_what_stands_in_for_test_samples(fake, report, split, heading):
    change_json(fake.job("a") / "evaluation.json", split=split)
    text = check(report(fake)).text
    assert f"Confusion matrices on {heading}" in text
    assert (f"no test split: results were measured on {heading}" in text) == (split != "test")


def test_what_was_asked_and_used_is_shown(fake, report):
    fake.job(), fake.job("downpour", config={"resources": {"mem_mb": 90_000}, "parallel": {"ranks": 2}})
    text = report(fake).read_text()
    for cell in ("4,000 MB", "90,000 MB", "700 MB", "mem_mb: 1200"):
        assert cell in text


def test_the_time_between_attempts_is_left_out_of_the_usage():
    seconds = [0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 5000.0, 5000.1, 5001.0, 5001.1]
    found = _without_breaks(pd.DataFrame({"seconds": seconds, "rank": [0, 1] * 5}))["seconds"]
    assert found.tolist() == pytest.approx([0, 0.1, 1, 1.1, 2, 2.1, 3.1, 3.2, 4.1, 4.2])


def test_the_distances_between_nodes_are_a_heat_map_unless_there_are_many(fake, report):
    folder, places = fake.gossip(), np.arange(21.0)
    far = np.abs(np.subtract.outer(places, places)) * 1.25
    np.savez(folder / "consensus.npz", distance_820=far[:4, :4], distance_779=far[:4, :4] + 9)
    text = check(report(fake)).text
    assert "distance between two nodes" in text
    assert "3.75" in text
    assert "12.75" not in text
    np.savez(folder / "consensus.npz", distance_820=far)
    text = check(report(fake)).text
    assert "The distances between 21 nodes are too many for this page" in text
    assert "distance between two nodes" not in text
    np.savez(folder / "consensus.npz", distance_41=far)
    with pytest.raises(UserError, match=r"consensus\.npz is damaged: it has no square array distance_820"):
        report(fake)


def test_each_run_shows_the_generated_samples_of_its_first_seed(fake, report):
    for run, seed in (("wgan", 1), ("wgan", 2), ("classifier", 1), ("lsgan", 1)):
        folder = fake.job(run, seed)
        if run != "classifier":
            Image.new("L", (16, 16), seed).save(folder / "samples.png")
    page = report(fake).read_text()
    assert page.count('<img class="samples" src="data:image/png;base64,') == 2
    assert '<a href="#samples">' in page
