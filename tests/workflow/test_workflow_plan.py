"""The plan of an experiment: its jobs, stores, options of commands, resources, and its lease."""

import json
import os
import re
import shlex
from contextlib import chdir
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import user_project
from helpers.training_here import training_here

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.attempts import SESSION_VARIABLE
from nnlo_lib.state.lease import Lease
from nnlo_lib.workflow.plan import Plan
from nnlo_lib.workflow.single_run import comparing_metric

SETTINGS = {
    "name": "plans",
    "data": {"source": "/a folder/it's"},
    "runs": {
        "two": {"parallel": {"ranks": 2, "threads_per_rank": 3}},
        "one": {"parallel": {"ranks": 1}, "data": {"format": "npz", "shard_size": 50}},
        "virtual": {"parallel": {"ranks": 8, "transport": "simulated"}},
        "other": {"data": {"dataset": "mnist", "source": None}},
    },
    "seeds": [1, 2],
}


@pytest.fixture
def plan() -> Plan:
    return Plan.of(Experiment.model_validate(SETTINGS))


def test_jobs_of_several_processes_and_of_one(plan):
    assert [job.path for job in plan.jobs] == [
        f"{run}/seed-{seed}" for run in SETTINGS["runs"] for seed in (1, 2)
    ]
    launchers = {name: plan.launcher(name) for name in SETTINGS["runs"]}
    assert launchers == {"two": "mpiexec", "one": "", "virtual": "", "other": "mpiexec"}
    jobs = [SimpleNamespace(run=name, job="seed-1") for name in SETTINGS["runs"]]
    assert [plan.training_resources.threads(job) for job in jobs] == [6, 1, 1, 2]


def test_one_store_for_each_data_set_and_layout(plan):
    names = list(plan.stores)
    assert [re.sub(r"-[0-9a-f]{12}$", "-KEY", name) for name in names] == [
        "digits/hdf5-KEY",
        "digits/npz-KEY",
        "mnist/hdf5-KEY",
    ]
    assert plan.manifest("virtual") == plan.manifest("two") == f"data/{names[0]}/manifest.json"
    assert plan.manifest("one") == f"data/{names[1]}/manifest.json"
    assert plan.convert_options(names[1]) == (
        f"--raw data/digits/raw --target data/{names[1]} --format npz --shard-size 50 --key {names[1][-12:]}"
    )
    assert plan.raw_record(names[1]) == "data/digits/raw/fetched.json"


def test_source_and_reader_are_quoted_for_the_shell(plan, tmp_path, monkeypatch):
    assert plan.fetch_options("digits", "raw") == """--source '/a folder/it'"'"'s'"""
    assert plan.fetch_options("mnist", "raw") == ""
    monkeypatch.chdir(tmp_path)
    np.savez("it's 1.npz", features=np.zeros((4, 3)), labels=np.arange(4))
    data = {"dataset": "jets", "source": ".", "reader": {"name": "arrays", "train": "it's *.npz"}}
    jets = Plan.of(Experiment.model_validate({"data": data}))
    (name,) = jets.stores
    words = shlex.split(jets.convert_options(name))
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert json.loads(options["--reader"]) == {"name": "arrays", "train": "it's *.npz"}
    assert options["--key"] == name[-12:]
    (raw,) = {store.raw.name for store in jets.stores.values()}
    assert shlex.split(jets.fetch_options("jets", raw))[:2] == ["--source", "."]


def test_shards_of_a_folder_are_smaller_unless_told():
    data = {"dataset": "birds", "source": "/x", "reader": {"name": "folder"}}
    sizes = [DataConfig.model_validate(data | more).samples_per_shard for more in ({}, {"shard_size": 7})]
    assert sizes == [1000, 7]


def test_only_tfrecords_are_converted_by_jobs_of_their_own(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for index in range(3):
        (tmp_path / f"train-{index:05d}-of-00003").touch()
    (tmp_path / "validation-00000-of-00001").touch()
    data = {"dataset": "imagenet", "source": str(tmp_path)}
    imagenet = Plan.of(Experiment.model_validate({"data": data}))
    (shards,) = imagenet.shards.values()
    assert shards == [
        *(f"train/train-{index:05d}-of-00003" for index in range(3)),
        "test/validation-00000-of-00001",
    ]
    assert list(plan.shards.values()) == [[], [], []]


@pytest.mark.parametrize("source", [None, "/no/such/folder", "."])
def test_missing_tfrecords_are_named_before_anything_runs(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train-00000-of-00002").touch()
    data = {"dataset": "imagenet", "source": source}
    with pytest.raises(UserError, match="train-00001-of-00002" if source == "." else r"data\.source"):
        assert Plan.of(Experiment.model_validate({"data": data})).shards


@pytest.mark.parametrize(
    ("folds", "job", "options"), [(1, "seed-12", "--seed 12"), (3, "seed-1/fold-2", "--seed 1 --fold 2")]
)
def test_folder_of_a_job_and_its_options(folds, job, options):
    plan = Plan.of(Experiment(folds=folds))
    assert re.fullmatch(plan.job_pattern, job)
    assert not re.fullmatch(plan.job_pattern, "seed-1/fold-2" if folds == 1 else "seed-12")
    assert plan.job_options(job) == options


def test_resolved_configuration_gives_the_run_again(plan):
    resolved = json.loads(plan.resolved_config("one"))
    assert (resolved["experiment"], resolved["name"], resolved["folds"]) == ("plans", "one", 1)
    again = Run.model_validate(resolved["run"])
    assert again == plan.run("one")
    assert again.hash == plan.run("one").hash


def test_the_users_files_are_inputs_of_the_runs_that_depend_on_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    user_project.write_project(tmp_path)
    plan = Plan.of(Experiment.model_validate(user_project.COMMON | {"runs": user_project.RUNS}))
    edits = {(change.run, change.file) for change in user_project.EDITS}
    found = {(run, os.path.relpath(file)) for run in user_project.RUNS for file in plan.input_files(run)}
    assert found == edits


def test_a_search_alone_has_no_run():
    plan = Plan.of(Experiment.model_validate({"search": {"space": {"train.batch_size": [8, 9]}}}))
    message = "has a `search:` section and no `runs:`; run it with `nnlo search FILE`"
    with pytest.raises(UserError, match=message):
        plan.run("allreduce")


def test_a_second_snakemake_of_an_experiment_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    releases = []
    monkeypatch.setattr("atexit.register", releases.append)
    monkeypatch.setattr("nnlo_lib.workflow.plan.Lease", partial(Lease, beat=0.1))
    plan = Plan.of(Experiment.model_validate({"name": "e", "runs": {"r": {}}}))
    plan.lease_experiment()
    try:
        with pytest.raises(UserError, match=r"results/e is being written by"):
            plan.lease_experiment()
    finally:
        releases[0]()
    assert not (tmp_path / "results/e/.workflow/lease.json").exists()


@pytest.mark.parametrize(
    ("metrics", "column"),
    [
        (("accuracy", "mine.py:gain"), "val_accuracy"),
        (("mine.py:gain", "mae"), "val_mae"),  # the smallest gain would be taken for the best one
        (("mine.py:gain",), "val_loss"),
        ((), "val_loss"),
    ],
)
def test_simulations_are_not_compared_by_a_metric_without_a_direction(metrics, column):
    assert comparing_metric(metrics) == column


def test_trainings_of_one_start_of_snakemake_have_one_session(tmp_path, monkeypatch):
    monkeypatch.setenv(SESSION_VARIABLE, "an earlier one")
    with chdir(tmp_path):
        Plan.of(Experiment.model_validate({"name": "t"})).lease_experiment()
    run = training_here(
        tmp_path, model={"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}, train={"epochs": 1}
    )
    run.finish()
    summary = json.loads((run.job / "summary.json").read_text())
    assert summary["session"] == os.environ[SESSION_VARIABLE] != "an earlier one"
