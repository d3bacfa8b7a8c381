"""Every algorithm on real ranks, of which one dies or is told to stop, again and again, ends as if nothing had been."""

import random
from dataclasses import replace

import pytest
from train.test_crash_matrix import check_uses, job
from train.test_every_algorithm import ASYNCHRONOUS, SYNCHRONOUS, manifest, rows

from nnlo_lib.chaos.attempt import SAID, attempt
from nnlo_lib.chaos.comparison import differences
from nnlo_lib.config.validity import MATRIX
from nnlo_lib.train.faults import Fault, places, struck

__all__ = ["manifest"]
pytestmark = pytest.mark.slow
PATIENCE = 100  # seconds for one attempt
EPOCHS = 20  # so many that none ends before a signal has reached all ranks
SHARE = 10  # the part of a run in which a fault strikes
STATUS = {"kill": {1}, "torn": {1}, "flipped": {1}, "term": {75, 0}, "term_all": {75, 0}}
CASES = {name: case for case in {**ASYNCHRONOUS, **SYNCHRONOUS} for name in [case.partition(",")[0]]}


def real(folder, manifest, case):
    """Return a training of a case on two to five real ranks."""
    settings = (SYNCHRONOUS | ASYNCHRONOUS)[case]
    parallel = {"ranks": 3} | settings.get("parallel", {}) | {"transport": "mpi"}
    made = job(folder, manifest, case, settings | {"parallel": parallel})
    train = made.run.train.model_copy(update={"epochs": EPOCHS})
    return replace(made, run=made.run.model_copy(update={"train": train}))


def chain(ranks, found, seed):
    """Return a fault of each kind; found: how often each rank reaches each place."""
    draw = random.Random(seed)

    def fault(action, where, rank):
        place = draw.choice(sorted(name for name in found[rank] if name.startswith(where)))
        return place, rank, 1 + draw.randrange(-(-found[rank][place] // SHARE)), action

    anyone = [draw.randrange(ranks) for _ in range(4)]
    faults = [
        fault("kill", "exchange.", anyone[0]), fault("kill", "checkpoint.written", anyone[1]),
        fault("term", "exchange.", anyone[2]), fault(draw.choice(["torn", "flipped"]), "checkpoint.published", 0),
        fault("term_all", "exchange.", anyone[3]),
    ]  # fmt: skip
    return [Fault(number, *each) for number, each in enumerate(faults)]


@pytest.mark.parametrize("name", MATRIX)
def test_a_training_comes_back(tmp_path, manifest, name):
    whole, parts = (real(tmp_path / folder, manifest, CASES[name]) for folder in ("whole", "parts"))
    assert attempt(whole, "mpiexec", [], PATIENCE) == 0, (whole.folder / SAID).read_text()
    ranks = whole.run.parallel.ranks
    for fault in chain(ranks, [places(whole.folder, rank) for rank in range(ranks)], name):
        status = attempt(parts, "mpiexec", [fault], PATIENCE)
        assert fault.number in struck(parts.folder), f"{fault}: {(parts.folder / SAID).read_text()}"
        assert status in STATUS[fault.action], f"{fault}: {(parts.folder / SAID).read_text()}"
    assert attempt(parts, "mpiexec", [], PATIENCE) == 0, (parts.folder / SAID).read_text()
    check_uses(parts)
    if CASES[name] in SYNCHRONOUS:
        assert differences(parts.folder, whole.folder) == []
    else:
        assert rows(parts)[-1]["invariant"] < 1e-5
