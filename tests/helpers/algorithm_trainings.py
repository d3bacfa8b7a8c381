"""Small simulated trainings of every algorithm, one for each variant that saves a different state."""

import json

import pytest
from safetensors import safe_open

from helpers.training_here import digits
from helpers.training_process import TIMINGS, StopAfter
from nnlo_lib.config import Experiment
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

NETWORK = """
from torch import nn

def normalised(shape, classes):
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2),
        nn.Flatten(), nn.Linear(height * width, classes),
    )
"""
DATA = {"validation": 0.5}  # leaves 721 samples: 6 steps per epoch, the last one with fewer samples
BATCH = {1: 121, 2: 61, 3: 41, 4: 31}  # batch size, by number of workers
STEPS, EPOCHS = 6, 2
# Steps per round, which may span epochs; steps between two averages, which may not.
ROUND, MEETING = 3, 5
CYCLE, LAZY = {"name": "cycle"}, {"name": "cycle", "weights": "lazy_metropolis"}
PAIRS = {"parallel": {"processes_per_worker": 2}}
FIVE = {"parallel": {"ranks": 5}}


def served(name, **settings):
    """Return the settings of a synchronous server algorithm."""
    return {"algorithm": {"name": name, "synchronous": True, **settings}}


SYNCHRONOUS = {
    "allreduce": {},
    "allreduce, buckets": {"algorithm": {"name": "allreduce", "bucket_mb": 0.001}},
    "allreduce, sign": {"compression": {"name": "sign"}},
    "allreduce, powersgd": {"compression": {"name": "powersgd"}},
    "average": {"algorithm": {"name": "average", "sync_every": MEETING}},
    "average, groups": {"algorithm": {"name": "average", "sync_every": MEETING}, **PAIRS},
    "diloco": {"algorithm": {"name": "diloco", "sync_every": MEETING}},
    "diloco, random_k": {
        "algorithm": {"name": "diloco", "sync_every": MEETING},
        "compression": {"name": "random_k", "fraction": 0.1},
    },
    "average, clients": {
        "algorithm": {"name": "average", "sync_every": MEETING, "participation": 0.5, "proximal": 0.1}
    },
    "scaffold": {
        "algorithm": {"name": "scaffold", "sync_every": MEETING},
        "train": {"optimizer": {"name": "sgd", "lr": 0.02}},
    },
    "individual": {},
    "downpour, synchronous": served("downpour", sync_every=2),
    "downpour, masters": {**served("downpour", masters=2), **FIVE},
    "downpour, unequal parts": {**served("downpour"), "data": {"partition": {"name": "by_class"}}},
    "easgd, synchronous": served("easgd", sync_every=2),
    "easgd, masters": {**served("easgd", sync_every=1, masters=2), **FIVE},
    "gosgd, synchronous": served("gosgd", probability=0.4),
    "sgp": {"topology": {"name": "one_peer_exponential"}},
    "sgp, random graphs": {"topology": {"name": "erdos_renyi", "p": 0.5, "redraw_every": 1}},
    "dsgd": {"topology": {"name": "complete", "drop": 0.3}},
    "dsgd, momentum": {
        "algorithm": {"name": "dsgd", "quasi_global_momentum": 0.8},
        "train": {"optimizer": {"name": "sgd", "lr": 0.02}},
    },
    "dsgd, in place": {"algorithm": {"name": "dsgd", "mixing": "in_place"}},
    "dsgt": {},
    "d2": {"topology": LAZY},
    "dinno": {"algorithm": {"name": "dinno", "primal_iterations": ROUND, "rho_scaling": 1.1}},
    "dinno, persistent": {
        "algorithm": {"name": "dinno", "primal_iterations": ROUND, "persistent_optimizer": True},
        "train": {"optimizer": {"name": "adam", "lr": 0.002}},
    },
    "prox_pda": {},
    "next": {"algorithm": {"name": "next", "inner_steps": ROUND, "step": 0.9, "step_decay": 0.1}},
    "choco_sgd": {"compression": {"name": "random_k", "fraction": 0.1}},
    "choco_sgd, powersgd": {"compression": {"name": "powersgd"}},
    "allreduce, average": {"train": {"ema": {"decay": 0.9}}},
    "diloco, streaming": {
        "algorithm": {"name": "diloco", "sync_every": MEETING, "fragments": 2, "overlap": 3},
        "compression": {"name": "random_k", "fraction": 0.1},
        "train": {"optimizer": {"name": "muon", "lr": 0.002}},  # MuLoCo
    },
    "noloco": {"algorithm": {"name": "noloco", "sync_every": MEETING}},
    "allreduce, schedule_free": {"train": {"optimizer": {"name": "schedule_free", "lr": 0.01}}},
    "allreduce, shard": {
        "algorithm": {"name": "allreduce", "shard": "optimizer"},
        "train": {"optimizer": {"name": "adamw", "lr": 0.002}},
    },
}
# These cases are also stopped within a round.
ROUNDS = dict.fromkeys(("average", "diloco", "noloco", "scaffold"), MEETING) | {"dinno": ROUND, "next": ROUND}
ASYNCHRONOUS = {
    "downpour": {"algorithm": {"name": "downpour", "sync_every": 2}},
    "downpour, masters": {"algorithm": {"name": "downpour", "masters": 2}, **FIVE},
    "easgd": {"algorithm": {"name": "easgd", "sync_every": 2}},
    "gem": {"algorithm": {"name": "gem", "sync_every": 2}},
    "gosgd": {"algorithm": {"name": "gosgd", "probability": 0.4}},
    "adpsgd": {},
    "adpsgd, groups": PAIRS,
}
# Tests that start processes for each case leave these out.
SIMULATED_ASYNCHRONOUS = ASYNCHRONOUS | {
    "easgd, momentum": {"algorithm": {"name": "easgd", "sync_every": 2, "momentum": 0.8, "lr": 0.02}},
}
CALLS = 10  # calls of the stop flag, summed over ranks, before the flag requests a stop
UNEQUAL = {"speeds": {1: 0.6, 2: 1.7}, "jitter": 0.3}  # speeds of the ranks, for asynchronous algorithms


@pytest.fixture(scope="session")
def manifest():
    """Return the manifest of the embedded digits."""
    return digits()


def task(folder, manifest, case, settings, **simulation):
    """Return the task that trains a case in `folder`; `case` is a key of SYNCHRONOUS or ASYNCHRONOUS."""
    (folder.parent / "network.py").write_text(NETWORK)
    name = case.partition(",")[0]
    parallel = {"ranks": 4, "transport": "simulated", "simulation": simulation} | settings.get("parallel", {})
    servers = settings.get("algorithm", {}).get("masters", 1) if ALGORITHMS[name].supports_server_tree else 0
    workers = (parallel["ranks"] - servers) // parallel.get("processes_per_worker", 1)
    train = {"epochs": EPOCHS, "batch_size": BATCH[workers], **settings.get("train", {})}
    train = {"optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}} | train
    run = {
        "algorithm": {"name": name}, "topology": CYCLE, "model": {"name": f"{folder.parent / 'network.py'}:normalised"},
        **settings, "data": DATA | settings.get("data", {}), "train": train, "parallel": parallel,
    }  # fmt: skip
    run = Plan.of(Experiment.model_validate(run)).run(name)
    return Task("t", folder.name, run, 0, None, 1, manifest, folder)


def rows(job):
    """Return the metrics of each epoch."""
    lines = (job.state / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def interrupt(job):
    """Train with repeated stops to the end; return each worker's steps at the first stop."""
    assert not train_simulated(job, StopAfter(CALLS))
    steps = first_steps(job)
    parts = 1
    while not train_simulated(job, StopAfter(CALLS)):
        parts += 1
        assert parts < EPOCHS * STEPS
    return steps


def first_steps(job):
    """Return the workers' steps that the newest checkpoint, one of the first epoch, records."""
    *_, folder = sorted((job.state / "checkpoints").iterdir())
    steps = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            progress = json.loads(file.metadata()["progress"])
        assert progress["epoch"] == 0
        steps.append(progress["index"])
    servers = job.run.algorithm.servers
    return steps[servers:]


def measured(job):
    """Return the history without timings, nodes, histograms and weights: interruptions must not change them."""
    nodes = job.folder / "nodes.csv"
    history = [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows(job)]
    counts = json.loads((job.folder / "summary.json").read_text())["histograms"]
    weights = (job.folder / "model.safetensors").read_bytes()
    return history, nodes.read_text() if nodes.exists() else None, counts, weights
