"""A training on a real Slurm ends with the same weights after each fault as without a fault."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from helpers import slurm_scenarios as stories
from helpers.repository_copy import Checkout, copy_checkout, environment
from helpers.slurm_cluster import Slurm, cluster
from helpers.slurm_runs import NNLO, Submitted, edit, undisturbed

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

# Enough epochs that no training ends before a signal that was already sent arrives.
EPOCHS = 40
BASE = {
    "seeds": [1],
    "runs": {"allreduce": {"parallel": {"ranks": 2}}},
    "train": {"epochs": EPOCHS, "batch_size": 16},
    "checkpoint": {"every": "1 epoch"},
}
RESOURCES = {"nodes": 2, "mem_mb": 1000, "runtime": 10}
SPECIAL = {
    stories.time_limit: {"runtime": 3},
    stories.preemption_with_grace_time: {"partition": "graceful"},
}
# Faults that may share a cluster: (number of faults in parallel, the faults in order, the longest first).
CLUSTERS = {
    "calm": (4, (stories.time_limit, stories.snakemake_is_killed, stories.scancel, stories.scontrol_requeue)),
    "crowded": (2, (stories.preemption_with_grace_time, stories.preemption)),
    "frail": (1, (stories.node_failure, stories.slurmctld_restarts)),
}
Story = Callable[[Submitted], None]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, bytes]:
    """Return a clone with converted data, and the weights of an undisturbed training."""
    checkout = copy_checkout(tmp_path_factory.mktemp("prepared") / "checkout")
    edit(checkout, "calm", **BASE)
    return checkout, undisturbed(checkout, "calm")


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, slurm: Slurm, prepared: tuple[Checkout, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Story, "Future[Submitted]"]]:  # fmt: skip
    """Run all requested faults in parallel, because they mostly wait for Slurm; return a future for each."""
    wanted = {
        test.callspec.params["story"] for test in request.session.items if test.module is request.module
    }
    futures = {}
    with ExitStack() as stack:
        for name, (at_once, possible) in CLUSTERS.items():
            if chosen := [story for story in possible if story in wanted]:
                folder = tmp_path_factory.mktemp(name)
                place = slurm if name == "calm" else stack.enter_context(cluster(folder))
                pool = stack.enter_context(ThreadPoolExecutor(at_once))
                for story in chosen:
                    futures[story] = pool.submit(_tell, story, place, prepared[0], folder / story.__name__)
        yield futures


def _tell(story: Story, slurm: Slurm, prepared: Checkout, folder: Path) -> Submitted:
    """Run a training with one fault in its own clone and return the submitted training.

    Args:
        story: causes the fault.
        slurm: the cluster.
        prepared: the clone to copy.
        folder: folder of the copy.
    """
    shutil.copytree(prepared.folder, folder, ignore=shutil.ignore_patterns("results"), symlinks=True)
    run = Submitted(slurm, Checkout(folder), story.__name__, EPOCHS)
    edit(run.checkout, run.name, **BASE, resources=RESOURCES | SPECIAL.get(story, {}))
    try:
        story(run)
    finally:
        run.abandon()
    return run


@pytest.mark.parametrize("story", [story for _, possible in CLUSTERS.values() for story in possible])
def test_it_ends_as_if_undisturbed(
    story: Story, told: dict[Story, "Future[Submitted]"], prepared: tuple[Checkout, bytes]
) -> None:
    run = told[story].result()
    assert (run.folder / "model.safetensors").read_bytes() == prepared[1]
    assert [row["epoch"] for row in run.rows("history")] == list(range(1, EPOCHS + 1))
    ledger = [(row["epoch"], row["missed"], row["repeated"]) for row in run.rows("ledger")]
    assert ledger == [(epoch, 0, 0) for epoch in range(1, EPOCHS + 1)]
    for before, after in pairwise(run.attempts):
        assert after["from"] == before["saved"]
        assert before["ended"] <= after["started"], "two trained at once"
    done = subprocess.run(
        [NNLO, "verify", run.folder], cwd=run.checkout.folder, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
