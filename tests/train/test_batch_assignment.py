"""Dynamic assignment of batches to workers: each sample is used once per epoch, and no worker waits for a straggler."""

import json

import pytest
from helpers.training_process import training

from nnlo_lib.config import Experiment
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.prepare_dataset import prepare_dataset
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

ASYNCHRONOUS = {
    "downpour": {"name": "downpour"},
    "easgd": {"name": "easgd", "sync_every": 2},
    "gosgd": {"name": "gosgd", "probability": 0.3},
    "adpsgd": {"name": "adpsgd"},
}
SLOW = {"stragglers": {"ranks": [1], "slowdown": 5}}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "hdf5" / "manifest.json"
    prepare_dataset(Experiment().data, path.parent)
    return path


def summary(folder, manifest, algorithm, dealing):
    settings = {
        "algorithm": algorithm, "topology": {"name": "cycle"}, "model": {"name": "dinno_conv"},
        "train": {"epochs": 2, "batch_size": 8, "dealing": dealing},
        "parallel": {"ranks": 4, "transport": "simulated", "simulation": SLOW},
    }  # fmt: skip
    run = Plan.of(Experiment.model_validate(settings)).run(algorithm["name"])
    assert train_simulated(Task("t", dealing, run, 0, None, 1, manifest, folder), StopFlag())
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_the_fast_do_the_work_of_the_slow(tmp_path, manifest, algorithm):
    static, dynamic = (
        summary(tmp_path / dealing, manifest, ASYNCHRONOUS[algorithm], dealing)
        for dealing in ("static", "dynamic")
    )
    assert static["samples_seen"] == dynamic["samples_seen"]
    assert dynamic["seconds"]["total"] < 0.6 * static["seconds"]["total"]


@pytest.mark.processes
def test_every_sample_once_on_mpi(tmp_path):
    run = training(tmp_path, "downpour", ranks=3, train={"dealing": "dynamic"})
    run.finish()
    rows = run.history
    first = rows[0]["samples"]
    assert [row["samples"] for row in rows] == [first, 2 * first, 3 * first]
    assert rows[-1]["passes"] == 3
