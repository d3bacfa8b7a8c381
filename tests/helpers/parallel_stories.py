"""Stories of trainings on clusters of several configurations, run in parallel because they mostly wait for Slurm."""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.repository_copy import Checkout
from helpers.slurm_cluster import Slurm, cluster
from helpers.slurm_options import ClusterOptions
from helpers.slurm_runs import Submitted, edit

Story = Callable[[Submitted], None]


@dataclass(frozen=True)
class StoryCluster:
    """A cluster and its stories, in the order in which they start.

    Attributes:
        options: configuration of the cluster.
        parallel: number of stories at a time; stories that preempt or stop others run one at a time.
        stories: the stories, the longest first.
    """

    options: ClusterOptions
    parallel: int
    stories: tuple[Story, ...]


@dataclass(frozen=True)
class EndedStory:
    """The training of a story after its end, and the seconds that the story took."""

    run: Submitted
    seconds: float


@dataclass(frozen=True)
class StoryTrainings:
    """Trainings of stories: each in a copy of a prepared clone.

    Attributes:
        prepared: the clone, with converted data.
        epochs: epochs of a training.
        settings: top-level keys of the experiment of a story.
    """

    prepared: Checkout
    epochs: int
    settings: Callable[[Story], Mapping[str, object]]

    def tell(self, story: Story, slurm: Slurm, folder: Path) -> EndedStory:
        """Run a story to its end; leave no process of the story behind.

        Args:
            story: the story.
            slurm: its cluster.
            folder: folder of the copy.
        """
        shutil.copytree(self.prepared.folder, folder, ignore=shutil.ignore_patterns("results"), symlinks=True)
        run = Submitted(slurm, Checkout(folder), story.__name__, self.epochs)
        edit(run.checkout, run.name, **self.settings(story))
        began = time.monotonic()
        try:
            story(run)
        finally:
            run.abandon()
        return EndedStory(run, time.monotonic() - began)


@contextmanager
def running_stories(
    trainings: StoryTrainings, clusters: Mapping[str, StoryCluster], wanted: Collection[Story], folder: Path
) -> Iterator[dict[Story, "Future[EndedStory]"]]:
    """Start the clusters of the wanted stories, and the stories in their order; yield a future for each.

    Args:
        trainings: the trainings.
        clusters: clusters by name.
        wanted: the stories to run.
        folder: folder of all clusters and copies.
    """
    futures: dict[Story, Future[EndedStory]] = {}
    with ExitStack() as stack:
        for name, each in clusters.items():
            if chosen := [story for story in each.stories if story in wanted]:
                slurm = stack.enter_context(cluster(folder / name / "slurm", each.options))
                pool = stack.enter_context(ThreadPoolExecutor(each.parallel))
                for story in chosen:
                    copy = folder / name / story.__name__
                    futures[story] = pool.submit(trainings.tell, story, slurm, copy)
        yield futures


def requested_stories(request: pytest.FixtureRequest) -> set[Story]:
    """Return the stories of the collected tests in the module of `request`."""
    return {test.callspec.params["story"] for test in request.session.items if test.module is request.module}
