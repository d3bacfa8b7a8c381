"""Every algorithm, stopped in the middle of an epoch again and again, goes on from where it was."""

import json

import pytest
import torch
from every_algorithm import ASYNCHRONOUS, EPOCHS, ROUNDS, STEPS, SYNCHRONOUS, UNEQUAL, manifest, rows, task
from safetensors import safe_open
from training import TIMINGS, StopAfter

from nnlo_lib.config.validity import MATRIX
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import simulate

__all__ = ["manifest"]
CALLS = 10  # of the flag, by all ranks together, before it asks to stop


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Compute with one thread, as a rank does: with more, small layers wait for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def interrupt(job):
    """Train in as many parts as it takes; return how far each worker was after the first one."""
    assert not simulate(job, StopAfter(CALLS))
    steps = first_steps(job)
    parts = 1
    while not simulate(job, StopAfter(CALLS)):
        parts += 1
        assert parts < EPOCHS * STEPS
    return steps


def first_steps(job):
    """Return the workers' steps, in the first epoch, of the only checkpoint."""
    (folder,) = (job.state / "checkpoints").iterdir()
    steps = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            progress = json.loads(file.metadata()["progress"])
        assert progress["epoch"] == 0
        steps.append(progress["index"])
    servers = getattr(job.run.algorithm, "masters", 0)
    return steps[servers:]


def measured(job):
    """Return all that must not depend on interruptions."""
    nodes = job.folder / "nodes.csv"
    history = [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows(job)]
    counts = json.loads((job.folder / "summary.json").read_text())["histograms"]
    weights = (job.folder / "model.safetensors").read_bytes()
    return history, nodes.read_text() if nodes.exists() else None, counts, weights


def test_no_algorithm_is_left_out():
    names = {case.partition(",")[0] for case in (*SYNCHRONOUS, *ASYNCHRONOUS)}
    assert names == set(MATRIX)


@pytest.mark.parametrize("compute", ["exact", "batched"])
@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_a_synchronous_training_resumes_to_the_same_bits(tmp_path, manifest, case, compute):
    settings = SYNCHRONOUS[case]
    whole, parts = (
        task(tmp_path / name, manifest, case, settings, compute=compute) for name in ("whole", "parts")
    )
    assert simulate(whole, StopFlag())
    steps = interrupt(parts)
    assert all(0 < step < STEPS for step in steps)
    name = case.partition(",")[0]
    assert name not in ROUNDS or all(step % ROUNDS[name] for step in steps)
    for ours, reference in zip(measured(parts), measured(whole), strict=True):
        assert ours == reference
    check_ledger(parts)


@pytest.mark.parametrize("compute", ["exact", "batched"])
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
