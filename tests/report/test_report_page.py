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
    for said in ("Most often confused", "0123456789ab", "2.13.0+cpu", fake.file.read_text()):
        assert said in found.text
    assert f"nnlo all {fake.file}" in found.text
    assert report(fake).read_bytes() == first


def one(fake):
    fake.job()


def one_epoch(fake):
    fake.job(epochs=1)


def folds(fake):
    for run in ("allreduce", "downpour"):
        for fold in range(4):
            fake.job(run, 1, fold, epochs=2), fake.job(run, 2, fold, epochs=2)


def some_validation(fake):
    fake.job("a", validation=False), fake.job("b")


def no_accuracy(fake):
    fake.job("a", accuracy=False), fake.job("b", accuracy=False, validation=False)


def many_runs(fake):
    for number in range(6):
        (
            fake.job(f"run-{number}", 1, epochs=2, level=0.9 + number / 200),
            fake.job(f"run-{number}", 2, epochs=2),
        )


def many_classes(fake):
    fake.job(classes=100)


def unequal_lengths(fake):
    fake.job(seed=1, epochs=20), fake.job(seed=2, epochs=5)


def long(fake):
    for seed in range(1, 9):
        fake.job(seed=seed, epochs=1000)


SHAPES = (one, one_epoch, folds, some_validation, no_accuracy, many_runs, many_classes, unequal_lengths, long)


@pytest.mark.parametrize("fill", SHAPES, ids=lambda fill: fill.__name__)
def test_pages_of_all_shapes_are_well_formed(fake, report, fill):
    fill(fake)
    check(report(fake))


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
    "empty": lambda path: path.write_bytes(b""),
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
    aggregate = ("task", "aggregate", "--output", str(summary), *jobs)
    report = (
        "task",
        "report",
        "--output",
        str(page),
        "--experiment-file",
        str(fake.file),
        "--summary",
        str(summary),
    )
    for command in (aggregate, (*report, *jobs)):
        done = nnlo(*command)
        assert (done.returncode or 0, done.stderr) == (0, "")
    assert len(summary.read_text().splitlines()) == 7
    old = page.read_bytes()
    (fake.folders[0] / "evaluation.json").write_text('{"split": "te')
    for command in (aggregate, (*report, *jobs)):
        done = nnlo(*command)
        assert done.returncode == 2
        assert "evaluation.json is cut short or damaged" in done.stderr
    assert page.read_bytes() == old
    assert {path.name for path in fake.root.iterdir() if path.is_file()} == {
        fake.file.name,
        summary.name,
        page.name,
    }


@pytest.mark.parametrize(
    ("split", "said", "heading"),
    [
        ("test", None, "the test split"),
        ("validation", "measured on the validation split", "the validation split"),
        ("held back", "the samples held back for validation", "the samples held back for validation"),
    ],
)
def test_the_page_says_what_stands_in_for_test_samples(fake, report, split, said, heading):
    change_json(fake.job("a") / "evaluation.json", split=split)
    text = check(report(fake)).text
    assert f"Confusion matrices on {heading}" in text
    assert ("no test split" in text) == bool(said)
    assert said is None or said in text


def test_layers_and_their_costs_are_shown(fake, report):
    layer = {"weights": [[4, 1, 3, 3]], "settings": "kernel=3", "flops": 4608, "bytes": 160}
    layers = [{"name": "0", "type": "Conv2d", "shape": [4, 8, 8], "parameters": 40, **layer}]
    flops = {"forward": 2_000_000, "backward": 4_000_000, "training": 6_000_000.0}
    model = {"name": "m", "parameters": 40, "layers": layers, "flops": flops}
    fake.change(fake.job(), samples_per_second=1000.0, model=model)
    page = check(report(fake)).text.replace("\u00a0", " ")
    assert "4 × 1 × 3 × 3" in page
    assert "4.61 k" in page
    assert "2 MFLOPs in a forward pass through the model and 4 MFLOPs in a backward pass" in page
    assert "together computed 6 GFLOP/s in allreduce" in page


def test_what_was_asked_and_used_is_shown(fake, report):
    fake.job(), fake.job("downpour", config={"resources": {"mem_mb": 90_000}, "parallel": {"ranks": 2}})
    text = report(fake).read_text()
    for cell in ("4,000 MB", "90,000 MB", "700 MB", "mem_mb: 1200"):
        assert cell in text


def test_what_a_monitor_measured_is_shown(fake, report):
    folder = fake.job("allreduce")
    fake.job("downpour")
    header = "seconds,rank,host,cpu_percent,memory_bytes,host_cpu_percent,host_memory_bytes,gpu_percent,gpu_memory_bytes"
    rows = [f"{t}.0,{rank},h,{90 + t},{500_000_000 + t},50,4e9,," for t in range(9) for rank in (0, 1)]
    (folder / "monitor.csv").write_text("\n".join([header, *rows, ""]))
    page = check(report(fake)).text.replace("\u00a0", " ")
    assert "Processor usage of a rank" in page
    assert "94.0 % (maximum 98.0 %)" in page
    assert "500 MB" in page
    assert "GPU memory" not in page


def test_the_time_between_attempts_is_left_out_of_the_usage():
    seconds = [0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 5000.0, 5000.1, 5001.0, 5001.1]
    found = _without_breaks(pd.DataFrame({"seconds": seconds, "rank": [0, 1] * 5}))["seconds"]
    assert found.tolist() == pytest.approx([0, 0.1, 1, 1.1, 2, 2.1, 3.1, 3.2, 4.1, 4.2])


def distances(nodes):
    return np.abs(np.subtract.outer(np.arange(float(nodes)), np.arange(float(nodes)))) * 1.25


def test_the_distances_between_nodes_are_a_heat_map_unless_there_are_many(fake, report):
    folder = fake.gossip()
    np.savez(folder / "consensus.npz", distance_820=distances(4), distance_779=distances(4) + 9)
    text = check(report(fake)).text
    assert "distance between two nodes" in text
    assert "3.75" in text
    assert "12.75" not in text
    np.savez(folder / "consensus.npz", distance_820=distances(21))
    text = check(report(fake)).text
    assert "The distances between 21 nodes are too many for this page" in text
    assert "distance between two nodes" not in text
    np.savez(folder / "consensus.npz", distance_41=distances(4))
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
