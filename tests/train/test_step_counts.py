"""Settings that count the steps of a worker: with dynamic dealing, and after a change of the number of ranks."""

import math

import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate
from helpers.training_process import StopAfter

from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.replica.replica import Replica

LR, WORKERS, BATCH, SAMPLES = 0.1, 4, 5, 180
SGD = {"name": "sgd", "lr": LR}
MODEL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}
DIMINISHED = LR
for _ in range(26):
    DIMINISHED *= 1 - 0.5 * DIMINISHED
STEPS = {
    "step": ({"schedule": {"name": "step", "every": 4, "factor": 0.5, "unit": "steps"}}, 0.5 ** (27 // 4)),
    "multi_step": ({"schedule": {"name": "multi_step", "milestones": [20], "unit": "steps"}}, 0.1),
    "exponential": ({"schedule": {"name": "exponential", "factor": 0.9, "unit": "steps"}}, 0.9**26),
    "diminishing": ({"schedule": {"name": "diminishing", "mu": 0.5}}, DIMINISHED / LR),
    "warm_up": ({"warm_up": {"steps": 40, "start": 0.0}}, 26 / 40),
}  # name: settings, and the factor on the rate after 26 steps of each worker


@pytest.fixture
def rates(monkeypatch):
    """Return the learning rates of all steps in the process, by replica."""
    seen: dict[int, list[float]] = {}
    step = Replica.step

    def noted(self):
        seen.setdefault(id(self), []).append(self.lr)
        return step(self)

    monkeypatch.setattr(Replica, "step", noted)
    return seen


@pytest.mark.parametrize("case", STEPS)
def test_with_dynamic_dealing_a_schedule_counts_the_steps_of_a_worker(tmp_path, small_store, rates, case):
    train = {"batch_size": BATCH, "dealing": "dynamic", "optimizer": SGD, **STEPS[case][0]}
    settings = {"train": train, "model": MODEL, "algorithm": {"name": "easgd"}}
    job = simulate(watched(tmp_path, small_store, {}, WORKERS + 1, **settings))
    # 3 epochs of 36 batches, 27 of each of the equally fast workers.
    assert {len(each) for each in rates.values()} == {27}
    for each in rates.values():
        assert each[-1] == pytest.approx(LR * STEPS[case][1])
        assert case != "multi_step" or each.count(LR) == 20
    assert read_rows(job.paths.state.history)[-1]["learning_rate"] == pytest.approx(LR * STEPS[case][1])


def test_with_dynamic_dealing_a_schedule_of_epochs_follows_the_epochs(tmp_path, small_store, rates):
    train = {"batch_size": BATCH, "dealing": "dynamic", "optimizer": SGD}
    train |= {"schedule": {"name": "step", "every": 1, "factor": 0.5}}
    slow = {"simulation": {"speeds": {1: 0.2}}, "ranks": 5, "transport": "simulated"}
    settings = {"train": train, "model": MODEL, "algorithm": {"name": "easgd"}, "parallel": slow}
    simulate(watched(tmp_path, small_store, {}, **settings))
    for each in rates.values():
        assert set(each) == {LR, LR / 2, LR / 4}


RESIZED = {
    "a milestone": {"schedule": {"name": "multi_step", "milestones": [20], "unit": "steps"}},
    "steps": {"schedule": {"name": "step", "every": 5, "factor": 0.7, "unit": "steps"}},
    "exponential": {"schedule": {"name": "exponential", "factor": 0.9, "unit": "steps"}},
    "diminishing": {"schedule": {"name": "diminishing", "mu": 0.5}},
    "warm-up": {"warm_up": {"steps": 15}},
    "dynamic": {"dealing": "dynamic", "warm_up": {"steps": 10}},
}


@pytest.mark.parametrize("case", RESIZED)
def test_after_a_change_of_ranks_steps_go_on_counting(tmp_path, small_store, rates, case):
    dynamic = case == "dynamic"
    train = {"batch_size": BATCH, "optimizer": SGD, **RESIZED[case]}
    algorithm = {"name": "easgd", "elastic_force": 0.5} if dynamic else {"name": "allreduce"}
    settings = {"train": train, "model": MODEL, "algorithm": algorithm}
    ends = []
    for ranks, calls in ((2, 10 if dynamic else 25), (6, 7), (3, 10**9)):
        rates.clear()
        task = watched(tmp_path, small_store, {}, ranks + dynamic, **settings)
        finished = train_simulated(task, StopAfter(calls * ranks))
        ends.append(next(iter(rates.values())))
    assert finished
    whole = [rate for end in ends for rate in end]
    in_order = sorted(whole) if "warm_up" in train else sorted(whole, reverse=True)
    assert whole == in_order
    if case == "a milestone":
        assert [whole.index(0.1 * LR), len(set(whole))] == [20, 2]
    if case == "warm-up":
        assert whole[:16] == pytest.approx([LR * (0.1 + 0.9 * step / 15) for step in range(16)])
        assert len(ends[0]) > 16


STRETCHED = {
    "linear": ({"name": "linear", "final": 0.02}, lambda done: LR - done * (LR - 0.02)),
    "log": ({"name": "log", "final": 0.001}, lambda done: LR * 0.01**done),
    "cosine": ({"name": "cosine", "final": 0.02}, lambda done: 0.06 + 0.04 * math.cos(math.pi * done)),
    "polynomial": ({"name": "polynomial"}, lambda done: LR * (1 - done) ** 2),
}  # name: settings, and the rate at a fraction of the training


@pytest.mark.parametrize("case", STRETCHED)
def test_after_a_change_of_ranks_a_stretched_schedule_has_the_rate_of_the_position(
    tmp_path, small_store, rates, case
):
    schedule, rate = STRETCHED[case]
    train = {"batch_size": BATCH, "optimizer": SGD, "schedule": schedule}
    settings = {"train": train, "model": MODEL, "algorithm": {"name": "allreduce"}}
    for ranks, calls in ((2, 25), (6, 7), (3, 10**9)):
        rates.clear()
        task = watched(tmp_path, small_store, {}, ranks, **settings)
        finished = train_simulated(task, StopAfter(calls * ranks))
        found, total = next(iter(rates.values())), 3 * SAMPLES // (BATCH * ranks)
        # The steps that follow each other in a training with this number of ranks, from the position of the change.
        expected = [rate(step / (total - 1)) for step in range(total)]
        begin = min(range(total), key=lambda step: abs(expected[step] - found[0]))
        assert found == pytest.approx(expected[begin : begin + len(found)], rel=1e-9, abs=1e-12)
    assert finished
    assert found[-1] == pytest.approx(rate(1), abs=1e-12)
