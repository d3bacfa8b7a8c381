"""Every setting of every algorithm changes the result of a training, or the check refuses it with a sentence."""

import itertools
import json
from hashlib import sha256

import pytest
import yaml
from helpers.observed_training import store

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config.algorithm import ALGORITHM_CONFIGS
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.replica.stacked_replicas import ReplicaStack
from nnlo_lib.train.task import Task
from nnlo_lib.train.trainer import Trainer

pytestmark = pytest.mark.timeout(900)  # hundreds of small trainings
GRAPHS = {"adpsgd": {"name": "path"}, "d2": {"name": "cycle", "weights": "lazy_metropolis"}}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.5}
# Settings that change the speed, or what is watched, but promise the same bits; and the choice of the transport.
SAME_BITS = {
    "train.compile", "train.channels_last", "train.restore_best", "train.early_stopping", "train.target",
    "algorithm.bucket_mb", "algorithm.reduction", "algorithm.shard", "data.placement",
}  # fmt: skip
# Toggles of `train`, `topology`, `compression`, `parallel`, `problem`, `loss`; keys of `algorithm` are added below.
TOGGLES = {
    "train.epochs": 2, "train.steps_per_epoch": 2, "train.batch_size": 7, "train.dealing": "dynamic",
    "train.accumulate": 3, "train.clip_norm": 1e-3, "train.precision": "float64", "train.precision ": "bf16",
    "train.optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.5}, "train.optimizer ": {"name": "adamw", "lr": 0.01},
    "train.schedule": {"name": "step", "every": 2, "factor": 0.5, "unit": "steps"},
    "train.schedule ": {"name": "cosine"}, "train.warm_up": {"steps": 5}, "train.scale_lr": "linear",
    "train.validate_every": 2, "train.evaluate_before": True,
    "topology": {"name": "star"}, "topology ": {"name": "exponential"},
    "topology.weights": "lazy_metropolis", "topology.weights ": "metropolis", "topology.drop": 0.5,
    "compression": {"name": "fp16"}, "compression ": {"name": "sign"}, "compression  ": {"name": "random_k", "fraction": 0.3},
    "parallel.ranks": 7, "parallel.processes_per_worker": 2, "parallel.sync_batch_norm": True,
    "parallel.simulation": {"speeds": {"3": 0.3}}, "parallel.simulation ": {"compute": "batched"},
    "parallel.simulation  ": {"latency": 0.01, "jitter": 0.5},
    "data.partition": {"name": "by_class"}, "data.augment": {"flip": 0.5}, "data.normalize": "standard",
    "data.placement": "device",
    "problem": {"name": "classification", "label_smoothing": 0.2},
    "problem   ": {"name": "classification", "mixup": 0.4, "cutmix": 1.0},
    "problem  ": {"name": "classification", "class_weights": {"1": 3.0}},
    "problem ": {"name": "classification", "outputs": "probabilities"},
    "loss": "hinge", "metrics": ["top2_accuracy"],
}  # fmt: skip


def other(key, value):
    """Return another value of a key of an algorithm."""
    if isinstance(value, bool):
        return not value
    known = {
        "optimizer": {"name": "sgd", "lr": 0.01}, "alpha": 0.4, "mixing": "in_place", "sync_every": 3, "gamma": 0.25,
        "step": 0.5, "probability": 0.3, "momentum": 0.3, "duals": "edge",
    }  # fmt: skip
    if key in known:
        return known[key]
    if isinstance(value, tuple):
        return [0.5, 0.9]
    return value + 1 if isinstance(value, int) else (value or 0) * 0.7 + 0.1


def toggles(name):
    """Return (key, other value) for each setting; `weights` has the default of a graph in one of two toggles."""
    config = ALGORITHM_CONFIGS[name]()
    keys = {f"algorithm.{key}": (key, value) for key, value in config if key != "name"}
    own = {key: other(*each) for key, each in keys.items() if key not in SAME_BITS}
    skipped = SAME_BITS | {"topology.weights"} if name == "d2" else SAME_BITS
    found = {key: value for key, value in (TOGGLES | own).items() if key not in skipped}
    return (
        found if name == "d2" else {key: value for key, value in found.items() if key != "topology.weights "}
    )


def base(name):
    config = ALGORITHM_CONFIGS[name]
    algorithm = {"name": name}
    algorithm |= {"sync_every": 2} if "sync_every" in config.model_fields else {}
    algorithm |= {"probability": 0.6} if "probability" in config.model_fields else {}
    # Without momentum, no update is scaled by more than `kappa`, and `largest_scale` has no effect.
    algorithm |= {"momentum": 0.9} if name == "gem" else {}
    graph = {"topology": GRAPHS.get(name, {"name": "cycle"})} if config.capabilities.graph_properties else {}
    train = {"epochs": 1, "batch_size": 9}
    train |= (
        {}
        if config.capabilities.step == "algorithm's"
        else {"optimizer": SGD | {"momentum": 0.5 * (name != "scaffold")}}
    )
    return {
        "name": "t", "algorithm": algorithm, **graph, "train": train,
        "parallel": {"ranks": 4 + config.capabilities.supports_server_tree, "transport": "simulated"},
    }  # fmt: skip


NETWORK = """
from torch import nn
def network(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes))
"""


def changed(settings, key, value):
    """Return the settings with another value; a section with a `name` replaces the section."""
    section, _, rest = key.strip().partition(".")
    if rest:
        return settings | {section: settings.get(section, {"name": "complete"}) | {rest: value}}
    return settings | {section: value}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("toggled")
    (path / "net.py").write_text(NETWORK)
    store(path / "store")
    return path


class Toggled:
    """Trains runs in a folder and keeps the digest of each result."""

    def __init__(self, folder):
        self._folder, self._numbers = folder, itertools.count()

    def result(self, settings):
        """Return the digest of a training: parameters of all ranks and the metrics; None if refused."""
        path = self._folder / "x.yaml"
        path.write_text(yaml.safe_dump(settings | {"model": {"name": f"{self._folder / 'net.py'}:network"}}))
        try:
            (run,) = load_experiment(path).variants.values()
            return self._train(run)
        except UserError:
            return None

    def _train(self, run):
        job = self._folder / str(next(self._numbers))
        task = Task("t", "t", run, 0, None, 1, self._folder / "store" / "manifest.json", job)
        parallel = run.parallel
        stack = ReplicaStack(parallel.ranks) if parallel.simulation.compute == "batched" else None

        def rank(comm):
            trainer = Trainer(RankContext(task, comm, stack), StopFlag())
            assert trainer.run()
            trainer.close()
            return trainer.context.replica.theta, trainer.recorder.validation_rows

        digest = sha256()
        # Times are the result of a simulated machine; other settings must change more than the time.
        hidden = NOT_RESULTS if "simulation" in run.parallel.model_fields_set else (*NOT_RESULTS, "seconds")
        for theta, rows in SimulatedWorld(parallel.ranks, parallel.simulation, 0).run(rank):
            digest.update(theta.detach().numpy().tobytes())
            for row in rows:
                measured = {key: value for key, value in row.items() if key not in hidden}
                digest.update(json.dumps(measured).encode())
        return digest.hexdigest()


NOT_RESULTS = ("learning_rate", "samples_per_second", "bytes")  # columns that only repeat a setting


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.exhaustive] * (each != "allreduce"))
        for each in ALGORITHM_CONFIGS
    ],
)
def test_every_setting_has_an_effect_or_is_refused(folder, name):
    toggled, settings = Toggled(folder), base(name)
    before = toggled.result(settings)
    assert before is not None
    after = {key: toggled.result(changed(settings, key, value)) for key, value in toggles(name).items()}
    assert {key for key, result in after.items() if result == before} == set()
    # Refusals are exceptions: a mistake in a toggle must not hide behind them.
    assert sum(result is not None for result in after.values()) > len(after) / 2
