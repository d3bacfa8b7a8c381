"""Every algorithm on MPI ranks resumes correctly after repeated kills, stop signals and damaged checkpoints."""

import random
import sys
from dataclasses import replace

import pytest
from helpers import fork_server
from helpers.algorithm_trainings import ASYNCHRONOUS, SYNCHRONOUS, manifest, rows
from train.test_crash_matrix import check_uses, job

from nnlo_lib.reliability.chaos.bitwise_comparison import find_differences
from nnlo_lib.reliability.chaos.faulty_attempt import run_faulty_attempt
from nnlo_lib.train.fault_injection import InjectedFault, injected_faults, reached_failpoints

__all__ = ["manifest"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENCE = 400  # time limit of an attempt in seconds
EPOCHS = 20  # enough that no training finishes before a signal has reached all ranks
SHARE = 10  # a fault occurs within this part (1 / SHARE) of a run
STATUS = {"kill": {1}, "truncate": {1}, "bitflip": {1}, "term": {75, 0}, "term_all": {75, 0}}
# number of ranks (default 3): average has groups of two, adpsgd needs a bipartite cycle
RANKS = {"average": 4, "adpsgd": 4}
LAST = {case.partition(",")[0]: case for case in SYNCHRONOUS}  # one case per algorithm


@pytest.fixture(autouse=True)
def forked_ranks(monkeypatch):
    """Fork the ranks from a process with all imports done, because imports take most of the time of an attempt."""
    monkeypatch.setattr(sys, "executable", str(fork_server.programs() / "python"))


def real(folder, manifest, case, settings):
    """Return the task of a case with MPI ranks."""
    parallel = {"ranks": RANKS.get(case.partition(",")[0], 3)} | settings.get("parallel", {})
    made = job(folder, manifest, case, settings | {"parallel": parallel | {"transport": "mpi"}})
    train = made.run.train.model_copy(update={"epochs": EPOCHS})
    return replace(made, run=made.run.model_copy(update={"train": train}))


def chain(found, seed):
    """Return a fault of each kind.

    Args:
        found: for each rank, how often it reaches each failpoint.
        seed: seed of the random choices.
    """
    draw = random.Random(seed)

    def fault(action, where, rank):
        place = draw.choice(sorted(name for name in found[rank] if name.startswith(where)))
        return place, rank, 1 + draw.randrange(-(-found[rank][place] // SHARE)), action

    anyone = [draw.randrange(len(found)) for _ in range(4)]
    faults = [
        fault("kill", "exchange.", anyone[0]), fault("kill", "checkpoint.written", anyone[1]),
        fault("term", "exchange.", anyone[2]), fault(draw.choice(["truncate", "bitflip"]), "checkpoint.published", 0),
        fault("term_all", "exchange.", anyone[3]),
    ]  # fmt: skip
    return [InjectedFault(number, *each) for number, each in enumerate(faults)]


def endured(tmp_path, *given):
    """Train once without faults and once with one fault after another; return both tasks."""
    whole, parts = (real(tmp_path / folder, *given) for folder in ("whole", "parts"))
    assert run_faulty_attempt(whole, "mpiexec", [], PATIENCE) == 0, said(whole)
    found = [reached_failpoints(whole.folder, rank) for rank in range(whole.run.parallel.ranks)]
    for fault in chain(found, given[1]):
        status = run_faulty_attempt(parts, "mpiexec", [fault], PATIENCE)
        assert fault.number in injected_faults(parts.folder), f"status {status} under {fault}: {said(parts)}"
        assert status in STATUS[fault.action], f"status {status} under {fault}: {said(parts)}"
    assert run_faulty_attempt(parts, "mpiexec", [], PATIENCE) == 0, said(parts)
    return whole, parts


def said(training):
    """Return the last output of the attempts."""
    return (training.folder / "said.txt").read_text()[-2000:]


@pytest.mark.parametrize("case", LAST.values())
def test_a_synchronous_training_comes_back_bit_for_bit(tmp_path, manifest, case):
    whole, parts = endured(tmp_path, manifest, case, SYNCHRONOUS[case])
    assert find_differences(parts.folder, whole.folder) == []
    check_uses(parts)


@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_an_asynchronous_training_comes_back_without_loss(tmp_path, manifest, case):
    _, parts = endured(tmp_path, manifest, case, ASYNCHRONOUS[case])
    assert rows(parts)[-1]["invariant"] < 1e-5
    check_uses(parts)
