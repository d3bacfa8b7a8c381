"""A training on a real Slurm ends with the same weights after each fault as without a fault."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from helpers import slurm_scenarios as stories
from helpers.parallel_stories import (
    EndedStory,
    Story,
    StoryCluster,
    StoryTrainings,
    requested_stories,
    running_stories,
)
from helpers.repository_copy import Checkout, copy_checkout, environment
from helpers.slurm_cluster import Slurm
from helpers.slurm_options import ClusterOptions
from helpers.slurm_runs import NNLO, assert_undisturbed, edit, undisturbed

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
# Stories that may share a cluster.
CLUSTERS = {
    "calm": StoryCluster(
        ClusterOptions(), 4,
        (stories.time_limit, stories.snakemake_is_killed, stories.scancel, stories.scontrol_requeue),
    ),
    "crowded": StoryCluster(
        ClusterOptions(), 2, (stories.preemption_with_grace_time, stories.preemption)
    ),
    "frail": StoryCluster(ClusterOptions(), 1, (stories.node_failure, stories.slurmctld_restarts)),
}  # fmt: skip


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
) -> Iterator[dict[Story, "Future[EndedStory]"]]:  # fmt: skip
    """Run the requested stories; the fixture `slurm` skips them where Slurm is missing."""
    trainings = StoryTrainings(
        prepared[0], EPOCHS, lambda story: BASE | {"resources": RESOURCES | SPECIAL.get(story, {})}
    )
    folder = tmp_path_factory.mktemp("stories")
    with running_stories(trainings, CLUSTERS, requested_stories(request), folder) as futures:
        yield futures


@pytest.mark.parametrize("story", [story for each in CLUSTERS.values() for story in each.stories])
def test_it_ends_as_if_undisturbed(
    story: Story, told: dict[Story, "Future[EndedStory]"], prepared: tuple[Checkout, bytes]
) -> None:
    run = told[story].result().run
    assert_undisturbed(run, prepared[1])
    done = subprocess.run(
        [NNLO, "verify", run.folder], cwd=run.checkout.folder, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
