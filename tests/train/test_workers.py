"""Settings that count workers: workers of several processes, servers, and ranks without samples in a step; optimizers of workers."""

import json
from collections import Counter

import pytest
import torch
import yaml
from helpers.algorithm_trainings import measured, task
from helpers.observed_training import watched
from helpers.training_here import simulate
from pydantic import ValidationError
from safetensors.torch import load_file

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.replica.replica import Replica

MODEL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}
SGD = {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}
GROUPED = {
    "average": ({"name": "average", "sync_every": 2}, 0),
    "individual": ({"name": "individual"}, 0),
    "diloco": ({"name": "diloco", "sync_every": 3}, 0),
    "downpour": ({"name": "downpour", "synchronous": True}, 1),
    "easgd": ({"name": "easgd", "synchronous": True, "sync_every": 2}, 1),
}


@pytest.mark.parametrize("case", GROUPED)
def test_a_worker_of_two_processes_trains_as_one_of_one(tmp_path, small_store, case):
    algorithm, servers = GROUPED[case]
    scale = {} if case == "individual" else {"scale_lr": "linear"}
    train = {"batch_size": 14, "precision": "float64", "optimizer": SGD, **scale}
    logs = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        parallel = {"ranks": 2 * processes + servers, "processes_per_worker": processes}
        parallel |= {"transport": "simulated"}
        task = watched(
            folder, small_store, {}, train=train, model=MODEL, algorithm=algorithm, parallel=parallel
        )
        simulate(task)
        logs.append((folder / "log.txt").read_text())
    assert all("scaled for 2 workers" in log for log in logs) == (case != "individual")
    assert all("7 steps per epoch" in log for log in logs)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in "12")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-9, atol=1e-12)


def test_individual_refuses_a_scaled_rate():
    with pytest.raises(ValidationError, match=r"individual trains every worker alone.*scale_lr: none"):
        Run.model_validate({"algorithm": {"name": "individual"}, "train": {"scale_lr": "linear"}})


# 180 samples in batches of 5 for 7 ranks: in the sixth step of an epoch, 2 ranks have none.
IDLE = {
    "individual": 15, "average": 15, "diloco": 15, "noloco": 15, "gosgd": 15, "sgp": 15, "dsgd": 15, "d2": 15, "choco_sgd": 15,
    "adpsgd": 15, "easgd": 15, "gem": 15,
    # The optimizer's gradient is the mean over ranks, an estimate of it, or also holds the consensus term.
    "allreduce": 18, "dsgt": 18, "next": 18, "dinno": 18,
}  # fmt: skip
RULES = {"sgd": SGD, "adam": {"name": "adam", "lr": 0.01}, "adamw": {"name": "adamw", "lr": 0.01}}


# The rule is the same for all algorithms: other optimizers are tried with three of them.
PAIRS = [
    (name, rule)
    for name in IDLE
    for rule in RULES
    if rule == "sgd" or name in ("individual", "dsgd", "allreduce")
]


@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_a_rank_without_samples_does_not_move_by_its_own_optimizer(
    tmp_path, small_store, monkeypatch, name, rule
):
    steps: Counter[int] = Counter()
    step = Replica.step
    monkeypatch.setattr(Replica, "step", lambda self: (steps.update([id(self)]), step(self))[1])
    servers = int(name in ("easgd", "gem"))
    graph = {"name": "path" if name == "adpsgd" else "cycle"}
    graph |= {"weights": "lazy_metropolis"} if name == "d2" else {}
    train = {"batch_size": 5, "optimizer": RULES[rule]}
    settings = {"train": train, "model": MODEL, "algorithm": {"name": name}, "topology": graph}
    simulate(watched(tmp_path, small_store, {}, 7 + servers, **settings))
    assert min(steps.values()) == IDLE[name]
    assert Counter(steps.values())[18] == (7 if IDLE[name] == 18 else 5)
    rows = [json.loads(row) for row in (tmp_path / "state/history.jsonl").read_text().splitlines()]
    assert rows[-1]["samples"] == 3 * 180


DEALT = {"downpour": {}, "easgd": {"sync_every": 2}, "gosgd": {"probability": 0.3}, "adpsgd": {}}


@pytest.mark.parametrize("name", DEALT)
def test_with_dynamic_dealing_fast_workers_do_the_work_of_slow_ones(tmp_path, small_store, name):
    seen, seconds = [], []
    for dealing in ("static", "dynamic"):
        slow = {"stragglers": {"ranks": [1], "slowdown": 5}}
        task = watched(
            tmp_path / dealing, small_store, {}, model=MODEL, topology={"name": "cycle"},
            algorithm={"name": name, **DEALT[name]}, train={"batch_size": 4, "dealing": dealing},
            parallel={"ranks": 4, "transport": "simulated", "simulation": slow},
        )  # fmt: skip
        simulate(task)
        summary = json.loads((task.folder / "summary.json").read_text())
        seen.append(summary["samples_seen"])
        seconds.append(summary["seconds"]["total"])
    assert seen[0] == seen[1]
    assert seconds[1] < 0.6 * seconds[0]


SCHEDULED = {"schedule": {"name": "step", "every": 3, "factor": 0.5, "unit": "steps"}, "scale_lr": "sqrt"}
RUN = {"algorithm": {"name": "easgd", "momentum": 0.5}, "parallel": {"ranks": 4}}


def trained(folder, manifest, algorithm, **train):
    job = simulate(
        task(folder, manifest, "easgd", {"algorithm": {"name": "easgd", **algorithm}, "train": train})
    )
    history, _, _, weights = measured(job)
    return history, weights


def test_lr_is_sgd_with_this_rate_under_the_schedule(tmp_path, manifest):
    sgd = {"name": "sgd", "lr": 0.03, "momentum": 0.0}
    by_key = trained(tmp_path / "key", manifest, {"lr": 0.03}, optimizer={"name": "adam"}, **SCHEDULED)
    assert by_key == trained(tmp_path / "optimizer", manifest, {}, optimizer=sgd, **SCHEDULED)
    assert by_key != trained(tmp_path / "other", manifest, {"lr": 0.03})


def gan(**problem):
    bound = {} if "weight_clip" in problem else {"gradient_penalty": 10}
    return {"problem": {"name": "gan", "critic_steps": 1, **bound, **problem}, "model": {"name": "wgan"}}


REFUSED = {
    "one of them has the momentum": {"parallel": {"ranks": 5, "processes_per_worker": 2}},
    "in a step that fp16 skips": {"train": {"precision": "fp16"}},
    "after the step that `problem.weight_clip` changes": gan(weight_clip=0.01),
    "after the step that `problem.generator_optimizer` changes": gan(generator_optimizer={"name": "sgd"}),
    "would move the generator in every step": gan(critic_steps=3),
    "would move the resting network in every step": {
        "problem": {"name": "gan", "half_steps": True},
        "model": {"name": "wgan"},
        "loss": "least_squares",
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_momentum_would_break_is_refused(tmp_path, reason):
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(RUN | REFUSED[reason]))
    with pytest.raises(UserError, match=rf"algorithm.momentum: the .*{reason}"):
        load_experiment(path)
    path.write_text(yaml.safe_dump(RUN | REFUSED[reason] | {"algorithm": {"name": "easgd"}}))
    load_experiment(path)


def test_two_momenta_are_a_warning():
    (doubt,) = Run.model_validate(RUN).algorithm.doubts(Run.model_validate(RUN))
    assert "easgd multiplies its momentum with the momentum of adam" in doubt
    plain = Run.model_validate(RUN | {"algorithm": RUN["algorithm"] | {"lr": 0.1}})
    assert list(plain.algorithm.doubts(plain)) == []


def test_an_optimizer_that_lr_replaces_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    settings = RUN | {"algorithm": {"name": "easgd", "lr": 0.1}, "train": {"optimizer": {"name": "adam"}}}
    path.write_text(yaml.safe_dump(settings))
    message = r"train.optimizer: easgd with `algorithm.lr` .* remove `train.optimizer` or"
    with pytest.raises(UserError, match=message):
        load_experiment(path)


# Time of a sample for each of two processes: without network delays, workers of one process keep the same pace.
SPEEDS = (1.0, 0.6, 1.7, 1.3)


def test_adpsgd_with_two_processes_per_worker_trains_as_with_one(tmp_path, small_store):
    """Asynchronous: equal only if the events have the same order, hence a virtual machine without network delays."""
    trained, rows, gaps = [], [], []
    for processes in (1, 2):
        speeds = [speed for speed in SPEEDS for _ in range(processes)]
        machine = {"latency": 0.0, "bandwidth": 1e30, "sample_seconds": 1e-4 * processes, "speeds": speeds}
        parallel = {"ranks": 4 * processes, "processes_per_worker": processes}
        task = watched(
            tmp_path / str(processes), small_store, {}, model=MODEL, algorithm={"name": "adpsgd"},
            # 180 samples: four equal steps of 4 workers of 10 samples, and 20 left for the fifth.
            train={"batch_size": 10, "precision": "float64", "optimizer": SGD, "validate_every": 2},
            topology={"name": "path"}, parallel=parallel | {"transport": "simulated", "simulation": machine},
        )  # fmt: skip
        simulate(task)
        state, summary = tmp_path / str(processes) / "state", tmp_path / str(processes) / "summary.json"
        trained.append(load_file(tmp_path / str(processes) / "model.safetensors"))
        rows.append([json.loads(row) for row in (state / "history.jsonl").read_text().splitlines()])
        gaps.append(json.loads(summary.read_text())["spectral_gap"])
    for name, value in trained[0].items():
        torch.testing.assert_close(trained[1][name], value, rtol=1e-9, atol=1e-12)
    assert trained[0].keys() == trained[1].keys()
    for one, other in zip(*rows, strict=True):
        for key in ("train_loss", "val_loss", "val_loss_min", "val_loss_max", "consensus_error"):
            assert other[key] == pytest.approx(one[key], rel=1e-6)
        assert one["consensus_error"] > 0
    assert gaps[0] == gaps[1], "the nodes of the graph are workers"
