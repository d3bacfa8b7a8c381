import json
import re
import shlex
from types import SimpleNamespace

import pytest

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.workflow.plan import Plan

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


def test_every_training_once(plan):
    assert [job.path for job in plan.jobs] == [
        f"{run}/seed-{seed}" for run in SETTINGS["runs"] for seed in (1, 2)
    ]


def test_runs_of_several_processes_and_of_one(plan):
    assert plan.parallel_runs == ["two", "other"]
    assert plan.single_runs == ["one", "virtual"]
    jobs = [SimpleNamespace(run=name, job="seed-1") for name in SETTINGS["runs"]]
    assert [plan.training_resources.threads(job) for job in jobs] == [6, 1, 1, 2]


def test_one_store_for_each_data_set_and_format(plan):
    assert list(plan.stores) == ["digits/hdf5", "digits/npz", "mnist/hdf5"]
    assert plan.manifest("virtual") == "data/digits/hdf5/manifest.json"
    assert plan.manifest("one") == "data/digits/npz/manifest.json"
    assert plan.convert_options("digits", "npz") == "--shard-size 50"
    assert plan.convert_options("digits", "hdf5") == "--shard-size 10000"


def test_source_and_reader_are_quoted_for_the_shell(plan):
    assert plan.fetch_options("digits") == """--source '/a folder/it'"'"'s'"""
    assert plan.fetch_options("mnist") == ""
    data = {"dataset": "jets", "source": "/x", "reader": {"name": "arrays", "train": "it's *.h5"}}
    words = shlex.split(Plan.of(Experiment.model_validate({"data": data})).convert_options("jets", "hdf5"))
    assert words[:3] == ["--shard-size", "10000", "--reader"]
    assert json.loads(words[3])["train"] == "it's *.h5"


def test_shards_of_a_folder_are_smaller_unless_told():
    data = {"dataset": "birds", "source": "/x", "reader": {"name": "folder"}}
    sizes = [DataConfig.model_validate(data | more).samples_per_shard for more in ({}, {"shard_size": 7})]
    assert sizes == [1000, 7]


def test_only_tfrecords_are_converted_by_jobs_of_their_own(plan, tmp_path):
    for index in range(3):
        (tmp_path / f"train-{index:05d}-of-00003").touch()
    (tmp_path / "validation-00000-of-00001").touch()
    data = {"dataset": "imagenet", "source": str(tmp_path)}
    imagenet = Plan.of(Experiment.model_validate({"data": data}))
    assert imagenet.shards["imagenet"] == [
        *(f"train/train-{index:05d}-of-00003" for index in range(3)),
        "test/validation-00000-of-00001",
    ]
    assert plan.shards == {"digits": [], "mnist": []}


@pytest.mark.parametrize("source", [None, "/no/such/folder"])
def test_imagenet_needs_its_folder_at_once(source):
    data = {"dataset": "imagenet", "source": source}
    with pytest.raises(UserError, match=r"data\.source"):
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


def test_a_model_is_made_of_its_files(tmp_path):
    weights = tmp_path / "w.safetensors"
    weights.touch()
    runs = {"drawn": {}, "read": {"model": {"weights": str(weights)}}}
    plan = Plan.of(Experiment.model_validate({"runs": runs}))
    assert [plan.input_files(name) for name in runs] == [[], [str(weights)]]


def test_a_search_alone_has_no_run():
    plan = Plan.of(Experiment.model_validate({"search": {"space": {"train.batch_size": [8, 9]}}}))
    with pytest.raises(
        UserError, match="has a `search:` section and no `runs:`; run it with `nnlo search FILE`"
    ):
        plan.run("allreduce")


def test_an_evaluation_asks_for_one_gpu_at_the_site_of_its_training():
    runs = {
        "gpus": {"parallel": {"ranks": 4, "gpus_per_rank": 1}, "resources": {"partition": "gpu"}},
        "cpus": {"parallel": {"ranks": 4}},
    }
    asked = Plan.of(Experiment.model_validate({"runs": runs})).training_resources.evaluation_resources
    values = {run: {name: asked[name](SimpleNamespace(run=run)) for name in asked} for run in runs}
    assert (values["gpus"]["gpu"], values["gpus"]["slurm_partition"]) == (1, "gpu")
    assert values["cpus"]["gpu"] == 0
    on_cpus = Plan.of(Experiment.model_validate({"runs": {"cpus": runs["cpus"]}}))
    assert on_cpus.training_resources.evaluation_resources == {}
