"""Jobs that Snakemake runs after an edit of the experiment file."""

import hashlib
import json
import re

import pytest
import yaml
from helpers.repository_copy import copy_checkout

TRAINED = {"train_single": 2, "evaluate": 2, "aggregate": 1, "report": 1}
ONE_TRAINED = {"train_single": 1, "evaluate": 1, "aggregate": 1, "report": 1}
BASE = {"parallel": {"ranks": 1}, "runs": {"a": {}, "b": {"train": {"batch_size": 32}}}, "seeds": [0]}
EPOCHS = {"epochs": 2, "batch_size": 64}
EDITS = {
    "nothing": ({}, {}),
    "resources": ({"resources": {"runtime": 7}}, {"report": 1}),
    "checkpoint": ({"checkpoint": {"every": "1 epoch"}}, {"report": 1}),
    "observe": ({"observe": {"trace": True}}, {"report": 1}),
    "placement": ({"parallel": {"ranks": 1, "peer_timeout": 9}, "data": {"stage_to": "/tmp"}}, {"report": 1}),
    "resources and metrics": ({"resources": {"runtime": 7}, "metrics": ["top2_accuracy"]}, TRAINED),
    "metrics": ({"metrics": ["top2_accuracy"]}, TRAINED),
    "more epochs": ({"train": EPOCHS | {"epochs": 3}}, TRAINED),
    "one run": ({"runs": {"a": {}, "b": {"train": {"batch_size": 16}}}}, ONE_TRAINED),
    "run added": ({"runs": BASE["runs"] | {"c": {"train": {"batch_size": 8}}}}, ONE_TRAINED),
    "run removed": ({"runs": {"a": {}}}, {"aggregate": 1, "report": 1}),
    "run renamed": ({"runs": {"a": {}, "c": BASE["runs"]["b"]}}, ONE_TRAINED),
    "seed added": ({"seeds": [0, 1]}, {"train_single": 2, "evaluate": 2, "aggregate": 1, "report": 1}),
    "folds": ({"folds": 2}, TRAINED | {"train_single": 4, "evaluate": 4}),
    "name": ({"name": "other"}, TRAINED),
}  # fmt: skip
SEARCH = {
    "space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1.0]}},
    "method": {"name": "sobol"},
    "trials": 2,
    "order": "fixed",
}
BEST = {"best": 1, "evaluate_best": 1, "aggregate": 1, "report": 1}
SEARCH_EDITS = {
    "nothing": ({}, {}, {}),
    "trials lowered": ({"trials": 1}, {}, {"report": 1}),
    "parallel raised": ({"parallel": 4}, {}, {"report": 1}),
    "target": ({"objective": {"target": 0.0}}, {}, {"report": 1}),
    "trials raised": ({"trials": 3}, {}, BEST | {"search": 1, "trials": 1, "choose": 1}),
    "resources": ({}, {"resources": {"runtime": 7}}, {"report": 1}),
    "observe": ({}, {"observe": {"trace": True}}, {"report": 1}),
    "resources and seed": ({}, {"resources": {"runtime": 7}, "seeds": [0, 1]}, BEST),
    "seed added": ({}, {"seeds": [0, 1]}, BEST),
}


def listed(output: str) -> dict[str, int]:
    """Return the number of jobs of each rule that a dry run lists."""
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", output.partition("Job stats:")[2].partition("\n\n")[0], re.M))
    return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}


def dry_run(checkout, **changes):
    checkout.experiment(**changes)
    run = checkout.snakemake("--dry-run")
    assert run.returncode == 0, run.stdout
    return listed(run.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a checkout with finished runs."""
    checkout = copy_checkout(tmp_path_factory.mktemp("trained") / "checkout")
    checkout.experiment(**BASE)
    assert checkout.snakemake().returncode == 0
    return checkout


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Return a checkout with a search that has ended."""
    checkout = copy_checkout(tmp_path_factory.mktemp("searched") / "checkout")
    checkout.experiment(runs={}, parallel={"ranks": 1}, search=SEARCH)
    assert checkout.snakemake().returncode == 0
    return checkout


@pytest.mark.slow
@pytest.mark.snakemake
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_runs_these_jobs(trained, edit):
    changes, jobs = EDITS[edit]
    assert dry_run(trained, **BASE | changes) == jobs


@pytest.mark.slow
@pytest.mark.snakemake
def test_fewer_epochs_are_refused_and_the_results_stay(trained):
    summary = trained.folder / "results/tiny/a/seed-0/summary.json"
    before = summary.read_bytes()
    trained.experiment(**BASE, train=EPOCHS | {"epochs": 1})
    run = trained.snakemake()
    assert run.returncode == 2
    assert (
        "results/tiny/a/seed-0 has the results of 2 epochs, which a training of 1 would replace" in run.stdout
    )
    assert "Traceback" not in run.stdout
    assert summary.read_bytes() == before


def test_results_whose_checkpoints_an_older_nnlo_wrote_are_not_deleted(trained):
    """The training would refuse its checkpoint, and Snakemake would delete the outputs of the failed job."""
    job = trained.folder / "results/tiny/a/seed-0"
    manifest = max((job / "state/checkpoints").glob("*/manifest.json"))
    content, model = manifest.read_text(), (job / "model.safetensors").read_bytes()
    older = json.loads(content) | {"version": 3}
    del older["checksum"]
    older["checksum"] = hashlib.sha256(json.dumps(older, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(older))
    try:
        trained.experiment(**BASE)
        assert trained.snakemake().returncode == 0, "nothing is trained, so that the format does not matter"
        trained.experiment(**BASE | {"metrics": ["top2_accuracy"]})
        refused = trained.snakemake()
        assert refused.returncode != 0
        assert "it has format 3, but this nnlo reads and writes only format" in refused.stdout
        assert (job / "model.safetensors").read_bytes() == model
    finally:
        manifest.write_text(content)


@pytest.mark.slow
@pytest.mark.snakemake
@pytest.mark.parametrize("edit", SEARCH_EDITS)
def test_an_edit_of_a_search_that_has_ended_runs_these_jobs(searched, edit):
    search, changes, jobs = SEARCH_EDITS[edit]
    assert (
        dry_run(searched, **{"runs": {}, "parallel": {"ranks": 1}, "search": SEARCH | search} | changes)
        == jobs
    )


@pytest.mark.slow
@pytest.mark.snakemake
def test_the_best_gets_edited_resources_and_seeds_after_the_end(searched):
    folder = searched.folder / "results/tiny"
    # A best that ran out of time has published nothing.
    (folder / "best/seed-0/summary.json").unlink()
    searched.experiment(runs={}, parallel={"ranks": 1}, search=SEARCH, resources={"runtime": 7}, seeds=[0, 1])
    run = searched.snakemake("--printshellcmds")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("--minutes 7 ") == 2
    assert json.loads((folder / "best/config.json").read_text())["run"]["resources"]["runtime"] == 7
    assert yaml.safe_load((folder / "search/best.yaml").read_text())["seeds"] == [0, 1]
    assert (folder / "best/seed-1/evaluation.json").exists()
    assert "Nothing to be done" in searched.snakemake().stdout
