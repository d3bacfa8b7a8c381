"""No event on three kinds of Slurm clusters makes a training hang, lose work, or try again what cannot succeed."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from helpers import preemption_stories as stories
from helpers.parallel_stories import (
    EndedStory,
    Story,
    StoryCluster,
    StoryTrainings,
    requested_stories,
    running_stories,
)
from helpers.repository_copy import Checkout, copy_checkout
from helpers.slurm_cluster import Slurm
from helpers.slurm_options import ACCOUNTING, CANCEL, PLAIN
from helpers.slurm_runs import assert_undisturbed, edit, undisturbed

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

# Enough epochs that no training ends before a signal that was already sent arrives.
EPOCHS = 40
BASE = {
    "seeds": [1],
    "runs": {"allreduce": {"parallel": {"ranks": 2}}},
    "train": {"epochs": EPOCHS, "batch_size": 16},
    "checkpoint": {"every": "1 epoch"},
}
RESOURCES = {"nodes": 2, "mem_mb": 1500, "runtime": 10}
# A model that fails in ranks only, so that the checks before the start pass.
NET = """
import os

from torch import nn

def net(shape, classes):
    ranked = {"PMI_RANK", "SLURM_STEP_ID"} & os.environ.keys()
    if ranked:
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
SPECIAL: dict[Story, dict[str, object]] = {
    stories.submit_limit: {"seeds": [1, 2, 3, 4]},
    stories.canceled: {"seeds": [1, 2]},
    stories.error_in_the_model: {"model": {"name": "net.py:net", "args": {}}},
    stories.memory_limit: {"resources": RESOURCES | {"mem_mb": 160}},
    stories.long_grace_time: {"resources": RESOURCES | {"partition": CANCEL.graceful}},
}
REFUSED = (stories.unknown_partition, stories.unknown_account, stories.error_in_the_model)
CLUSTERS = {
    "plain": StoryCluster(
        PLAIN, 3,
        (stories.forgotten_between_two_looks, stories.canceled, stories.failed_squeues, stories.sbatch_and_squeue_time_out),
    ),
    "frail": StoryCluster(PLAIN, 1, (stories.controller_is_down, stories.preempted_without_requeue)),
    "cancel": StoryCluster(CANCEL, 1, (stories.long_grace_time, stories.preempted_under_cancel)),
    "accounting": StoryCluster(
        ACCOUNTING, 3,
        (stories.submit_limit, stories.memory_limit, stories.snakemake_is_requeued, stories.pending_for_ever, *REFUSED),
    ),
}  # fmt: skip
STORIES = [story for each in CLUSTERS.values() for story in each.stories]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, bytes]:
    """Return a clone with converted data, and the weights of an undisturbed training."""
    checkout = copy_checkout(tmp_path_factory.mktemp("prepared") / "checkout")
    (checkout.folder / "net.py").write_text(NET)
    edit(checkout, "calm", **BASE)
    return checkout, undisturbed(checkout, "calm")


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, slurm: Slurm, prepared: tuple[Checkout, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Story, "Future[EndedStory]"]]:  # fmt: skip
    """Run the requested stories; the fixture `slurm` skips them where Slurm is missing."""
    wanted = requested_stories(request)
    trainings = StoryTrainings(
        prepared[0], EPOCHS, lambda story: BASE | {"resources": RESOURCES} | SPECIAL.get(story, {})
    )
    with running_stories(trainings, CLUSTERS, wanted, tmp_path_factory.mktemp("stories")) as futures:
        yield futures


@pytest.mark.parametrize("story", [story for story in STORIES if story not in REFUSED])
def test_it_ends_as_if_undisturbed(
    story: Story, told: dict[Story, "Future[EndedStory]"], prepared: tuple[Checkout, bytes]
) -> None:
    ended = told[story].result()
    run, weights = ended.run, (ended.run.folder / "model.safetensors").read_bytes()
    print(f"{run.name}: {ended.seconds:.0f} s, sha256 {hashlib.sha256(weights).hexdigest()}, {run.reasons}")
    assert_undisturbed(run, prepared[1])


@pytest.mark.parametrize("story", REFUSED)
def test_it_ends_in_one_sentence(story: Story, told: dict[Story, "Future[EndedStory]"]) -> None:
    ended = told[story].result()
    print(f"{ended.run.name}: {ended.seconds:.0f} s, {len(ended.run.terminal)} characters on the terminal")
