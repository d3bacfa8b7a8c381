"""The DAG on this machine is complete and reproducible, and repeats no finished job."""

import csv
import json
import time

import pytest

RUNS = ("allreduce", "downpour", "alone", "simulated")


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_stage_runs_once_and_then_nothing_is_left_to_do(checkout):
    checkout.experiment()
    first = checkout.snakemake()
    assert first.returncode == 0, first.stdout
    results = checkout.folder / "results/tiny"
    for run in RUNS:
        job = results / run / "seed-0"
        assert {
            "history.csv",
            "summary.json",
            "model.safetensors",
            "log.txt",
            "trace.json",
            "evaluation.json",
        } <= {path.name for path in job.iterdir()}
        assert [row["epoch"] for row in rows(job / "history.csv")] == ["1", "2"]
        assert json.loads((job / "evaluation.json").read_text())["samples"] == 355
    assert [row["run"] for row in rows(results / "summary.csv")] == list(RUNS)
    assert "<html" in (results / "report.html").read_text()

    started = time.monotonic()
    second = checkout.snakemake()
    assert second.returncode == 0
    assert "Nothing to be done" in second.stdout
    assert time.monotonic() - started < 60

    archive = checkout.snakemake("--report", "archive.html")
    assert archive.returncode == 0, archive.stdout
    assert (checkout.folder / "archive.html").stat().st_size > 100_000


def test_folds_become_jobs_that_validate_each_sample_once(checkout):
    checkout.experiment(folds=3, runs={"alone": {"parallel": {"ranks": 1}}})
    run = checkout.snakemake()
    assert run.returncode == 0, run.stdout
    table = rows(checkout.folder / "results/tiny/summary.csv")
    assert [row["fold"] for row in table] == ["0", "1", "2"]


def test_an_edit_of_one_run_reruns_only_that_run(checkout):
    checkout.experiment(runs={"a": {"parallel": {"ranks": 1}}, "b": {"parallel": {"ranks": 1}}})
    assert checkout.snakemake().returncode == 0
    checkout.experiment(
        runs={"a": {"parallel": {"ranks": 1}}, "b": {"parallel": {"ranks": 1}, "train": {"batch_size": 32}}}
    )
    again = checkout.snakemake()
    assert again.returncode == 0, again.stdout
    assert "train b seed-0" in again.stdout
    assert "train a seed-0" not in again.stdout
    log = (checkout.folder / "results/tiny/b/seed-0/log.txt").read_text()
    assert "the experiment changed since it was written" in log


def test_other_initial_weights_rerun_what_reads_them(checkout):
    weights = checkout.folder / "first.safetensors"
    made = {"parallel": {"ranks": 1}}
    checkout.experiment(runs={"drawn": made})
    assert checkout.snakemake().returncode == 0
    weights.write_bytes((checkout.folder / "results/tiny/drawn/seed-0/model.safetensors").read_bytes())
    checkout.experiment(runs={"drawn": made, "read": made | {"model": {"weights": weights.name}}})
    assert checkout.snakemake().returncode == 0
    assert "Nothing to be done" in checkout.snakemake("--dry-run").stdout
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    again = checkout.snakemake("--dry-run").stdout
    assert "train read seed-0" in again
    assert "train drawn seed-0" not in again


@pytest.mark.parametrize("flag", [[], ["--dry-run"]])
def test_a_mistake_is_a_sentence_before_anything_runs(checkout, flag):
    checkout.experiment(algorithm={"name": "downpuor"})
    run = checkout.snakemake(*flag)
    assert run.returncode == 2
    assert "tiny.yaml:" in run.stdout
    assert "did you mean 'downpour'?" in run.stdout
    assert "Traceback" not in run.stdout
    assert not (checkout.folder / "results").exists()


@pytest.mark.parametrize("flag", [(), ("-n",)], ids=["run", "dry run"])
def test_a_failing_model_names_the_line_before_anything_runs(checkout, flag):
    (checkout.folder / "broken.py").write_text(
        "def build(shape, classes):\n    raise RuntimeError('no such layer')\n"
    )
    checkout.experiment(model={"name": "broken.py:build"}, runs={"pair": {"parallel": {"ranks": 2}}})
    run = checkout.snakemake(*flag)
    assert run.returncode == 2
    assert run.stdout.count("model.name: broken.py:2 in build: RuntimeError: no such layer") == 1
    assert "Traceback" not in run.stdout
    assert not (checkout.folder / "results").exists()
