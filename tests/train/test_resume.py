"""Every algorithm resumes correctly after repeated stops within an epoch."""

import pytest
import torch
from helpers.algorithm_trainings import (
    ASYNCHRONOUS,
    ROUNDS,
    STEPS,
    SYNCHRONOUS,
    UNEQUAL,
    interrupt,
    manifest,
    measured,
    rows,
    task,
)

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

__all__ = ["manifest"]
COMPUTE = ["exact", pytest.param("batched", marks=pytest.mark.long)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Compute with one thread, as ranks do, because with more threads small layers wait for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_no_algorithm_is_left_out():
    names = {case.partition(",")[0] for case in (*SYNCHRONOUS, *ASYNCHRONOUS)}
    assert names == set(ALGORITHMS)


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_a_synchronous_training_resumes_to_the_same_bits(tmp_path, manifest, case, compute):
    settings = SYNCHRONOUS[case]
    whole, parts = (
        task(tmp_path / name, manifest, case, settings, compute=compute) for name in ("whole", "parts")
    )
    assert train_simulated(whole, StopFlag())
    steps = interrupt(parts)
    assert all(0 < step < STEPS for step in steps)
    name = case.partition(",")[0]
    assert name not in ROUNDS or all(step % ROUNDS[name] for step in steps)
    for ours, reference in zip(measured(parts), measured(whole), strict=True):
        assert ours == reference
    check_ledger(parts)


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_an_asynchronous_training_resumes_without_loss(tmp_path, manifest, case, compute):
    job = task(tmp_path / "parts", manifest, case, ASYNCHRONOUS[case], compute=compute, **UNEQUAL)
    assert any(0 < step < STEPS for step in interrupt(job))
    assert rows(job)[-1]["invariant"] < 1e-5
    check_ledger(job)


def check_ledger(job):
    """Assert that each epoch used each sample exactly once."""
    assert [row["passes"] for row in rows(job)] == [1, 2]
    assert [row["samples"] for row in rows(job)] == [721, 2 * 721]
