"""The HTML of the page is well-formed, self-contained and reproducible."""

import json
import re

import pandas as pd
import pytest
from helpers.html_page import HOSTILE, check

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.sections.resource_usage import _without_breaks


def test_the_default_experiment(fake, report):
    found = check(report(fake.quickstart()))
    for said in (
        "allreduce",
        "downpour",
        "Validation accuracy",
        "Most often confused",
        "0123456789ab",
        "2.13.0+cpu",
    ):
        assert said in found.text
    assert fake.file.read_text() in found.text
    assert "snakemake --profile profiles/local --configfile" in found.text


def test_the_same_inputs_give_the_same_bytes(fake, report):
    first = report(fake.quickstart()).read_bytes()
    assert report(fake).read_bytes() == first


def one(fake):
    fake.job()


def one_epoch(fake):
    fake.job(epochs=1)


def folds(fake):
    for run in ("allreduce", "downpour"):
        for fold in range(4):
            fake.job(run, 1, fold), fake.job(run, 2, fold)


def no_validation(fake):
    fake.job("a", validation=False), fake.job("b", validation=False)


def some_validation(fake):
    fake.job("a", validation=False), fake.job("b")


def no_accuracy(fake):
    fake.job("a", accuracy=False), fake.job("b", accuracy=False)


def many_runs(fake):
    for number in range(10):
        fake.job(f"run-{number}", 1, level=0.9 + number / 200), fake.job(f"run-{number}", 2)


def many_classes(fake):
    fake.job(classes=100)


def unequal_lengths(fake):
    fake.job(seed=1, epochs=20), fake.job(seed=2, epochs=5)


def long(fake):
    for run in "abcdefgh":
        for seed in (1, 2, 3):
            fake.job(run, seed, epochs=1000)


SHAPES = (one, one_epoch, folds, no_validation, some_validation, no_accuracy, many_runs, many_classes)


@pytest.mark.long
@pytest.mark.parametrize("fill", [*SHAPES, unequal_lengths, long], ids=lambda fill: fill.__name__)
def test_experiments_of_other_shapes(fake, report, fill):
    fill(fake)
    check(report(fake))


def test_a_loss_that_is_not_a_number(fake, report):
    folder = fake.job()
    history = (folder / "history.csv").read_text()
    (folder / "history.csv").write_text(re.sub(r"(?m)^(7(?:,[^,]*){5}),[^,]*", r"\1,nan", history))
    change(folder, "evaluation.json", loss=float("nan"))
    assert "nan" not in check(report(fake)).text


def test_hostile_names_are_only_text(fake, report):
    folder = fake.job()
    change(folder, "summary.json", run=HOSTILE, experiment=HOSTILE, hosts=[HOSTILE], code_version=HOSTILE)
    change(folder, "summary.json", config={HOSTILE: HOSTILE}, packages={HOSTILE: HOSTILE})
    change(
        folder,
        "summary.json",
        bytes_sent={HOSTILE: 5},
        model={"name": HOSTILE, "layers": [{"name": HOSTILE}]},
    )
    change(folder, "evaluation.json", confusion=[[1, 1], [0, 1]], classes=[HOSTILE, "b"])
    fake.file.write_text(f"name: {HOSTILE}\n</code></pre>{{{{ 7 * 7 }}}}")
    found = check(report(fake))
    assert found.text.count(HOSTILE) > 10
    assert "{{ 7 * 7 }}" in found.text


def change(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def cut_rows(path):
    path.write_text("\n".join(path.read_text().split("\n")[:4]) + "\n")


def remove(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def garble(path):
    path.write_bytes(b"\xff\xfe\x00\n")


@pytest.mark.parametrize("name", ["history.csv", "summary.json", "evaluation.json"])
@pytest.mark.parametrize("damage", [cut, remove, empty, garble], ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_named(fake, report, name, damage):
    fake.job(seed=1)
    damage(fake.job(seed=2) / name)
    with pytest.raises(UserError, match=rf"seed-2/{name}"):
        report(fake)
    assert not (fake.root / "report.html").exists()


def test_a_history_that_lacks_epochs_is_named(fake, report):
    cut_rows(fake.job() / "history.csv")
    with pytest.raises(UserError, match=r"history.csv ends before epoch 20"):
        report(fake)


def test_a_summary_that_lacks_a_key_is_named(fake, report):
    path = fake.job() / "summary.json"
    path.write_text('{"run": "a", "seed": 1}')
    with pytest.raises(UserError, match=r"summary.json lacks config, seconds"):
        report(fake)


def test_the_same_job_twice_is_refused(fake, report):
    fake.folders.append(fake.job())
    with pytest.raises(UserError, match="the same run, seed and fold"):
        report(fake)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("test", None),
        ("validation", "measured on the validation split"),
        ("held back", "the samples held back for validation"),
    ],
)
def test_what_stands_in_for_test_samples_is_said(fake, report, split, said):
    fake.job("a", 1)
    path = fake.folders[0] / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split": split}))
    text = check(report(fake)).text
    assert ("no test split" in text) == bool(said)
    assert said is None or said in text


def test_the_layers_and_what_they_cost(fake, report):
    folder = fake.job()
    layer = {"weights": [[4, 1, 3, 3]], "settings": "kernel=3", "flops": 4608, "bytes": 160}
    flops = {"forward": 2_000_000, "backward": 4_000_000}
    layers = [{"name": "0", "type": "Conv2d", "shape": [4, 8, 8], "parameters": 40, **layer}]
    fake.change(
        folder,
        samples_per_second=1000.0,
        model={"name": "m", "parameters": 40, "layers": layers, "flops": flops},
    )
    page = check(report(fake)).text
    assert "4 × 1 × 3 × 3" in page
    assert "4.61\u00a0k" in page
    assert "2\u00a0MFLOPs in a forward pass through the model and 4\u00a0MFLOPs in a backward pass" in page
    assert "together computed 6\u00a0GFLOP/s in allreduce" in page


def test_what_a_monitor_saw(fake, report):
    folder, without = fake.job("allreduce"), fake.job("downpour")
    rows = "".join(
        f"{t}.0,{rank},h,{90 + t},{500_000_000 + t},50,4e9,,\n" for t in range(9) for rank in (0, 1)
    )
    header = "seconds,rank,host,cpu_percent,memory_bytes,host_cpu_percent,host_memory_bytes,gpu_percent,gpu_memory_bytes"
    (folder / "monitor.csv").write_text(f"{header}\n{rows}")
    assert not (without / "monitor.csv").exists()
    page = check(report(fake)).text
    assert "Processor usage of a rank" in page
    assert "94.0\u00a0% (maximum 98.0\u00a0%)" in page
    assert "500\u00a0MB" in page
    assert "GPU memory" not in page


def test_the_time_between_attempts_is_left_out():
    seconds = [0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 5000.0, 5000.1, 5001.0, 5001.1]
    table = pd.DataFrame({"seconds": seconds, "rank": [0, 1] * 5})
    assert _without_breaks(table)["seconds"].tolist() == pytest.approx(
        [0, 0.1, 1, 1.1, 2, 2.1, 3.1, 3.2, 4.1, 4.2]
    )
