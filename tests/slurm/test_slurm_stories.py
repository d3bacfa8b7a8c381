"""No event on Slurm clusters with different rules makes a training hang, lose work, or try again what cannot succeed."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from helpers import slurm_stories as stories
from helpers.repository_copy import Checkout, copy_checkout, environment
from helpers.slurm_cluster import Slurm, cluster
from helpers.slurm_options import ACCOUNTING, CANCEL, PLAIN, ClusterOptions
from helpers.slurm_stories import NNLO, RESOURCES, TRAINING, Submitted

# The first test of a site waits for the cluster, and a story that runs alone for all others.
pytestmark = [pytest.mark.exhaustive, pytest.mark.slurm, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Story:
    """A story and its end.

    Attributes:
        tell: the story.
        before: reason of each attempt before the last, which finishes; empty if the first attempt finishes.
        one_job: all attempts are of one job, which Slurm requeued; otherwise Snakemake submits again.
        alone: the story disturbs other jobs of the cluster, so it runs after them.
        settings: changes of the experiment.
        logged: words in the log of the job.
    """

    tell: Callable[[Submitted], None]
    before: str = ""
    one_job: bool = True
    alone: bool = False
    settings: dict[str, object] = field(default_factory=dict)
    logged: tuple[str, ...] = ()


def asking(**resources: object) -> dict[str, object]:
    """Return the settings of a training that asks for other resources."""
    return {"resources": RESOURCES | resources}


GRACEFUL = asking(partition=ClusterOptions().graceful)
BROKEN = {"model": {"name": "net.py:net", "args": {}}}
SITES: dict[str, tuple[ClusterOptions, list[Story]]] = {
    "requeuing": (ClusterOptions(), [
        Story(stories.time_limit, "time limit", settings=asking(runtime=3)),
        Story(stories.snakemake_is_killed),
        Story(stories.requeued_by_user, "preempted"),
        Story(stories.preempted_with_grace_time, "preempted", True, True, GRACEFUL, ("is queued again", "attempt 1 ended")),
        Story(stories.node_failure, "node failure", alone=True),
    ]),
    "without accounting": (PLAIN, [
        Story(stories.forgotten_between_two_looks),
        Story(stories.canceled, "canceled", False, settings={"seeds": [1, 2]}),
        Story(stories.failing_commands),
        Story(stories.controller_is_down, alone=True),
        Story(stories.preempted_without_requeue, "preempted", False, True),
    ]),
    "canceling": (CANCEL, [
        Story(stories.preempted, "preempted", False, True),
        Story(stories.preempted_with_grace_time, "preempted", False, True, GRACEFUL),
    ]),
    "limiting": (ACCOUNTING, [
        Story(stories.submit_limit, settings={"seeds": [1, 2, 3, 4]}),
        Story(stories.memory_limit, "out of memory", False, settings=asking(mem_mb=160)),
        Story(stories.snakemake_is_requeued),
        Story(stories.pending_for_ever),
        Story(stories.unknown_partition, "refused"),
        Story(stories.unknown_account, "refused"),
        Story(stories.error_in_the_model, "refused", settings=BROKEN),
    ]),
}  # fmt: skip
STORIES = [
    (site, story.tell.__name__) for site, (_, stories_of_site) in SITES.items() for story in stories_of_site
]


@pytest.fixture(scope="module")
def prepared(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, bytes]:
    """Return a clone with converted data, and the weights of an undisturbed training; skip where Slurm is missing."""
    checkout = copy_checkout(tmp_path_factory.mktemp("prepared") / "checkout")
    stories.edit(checkout, "calm", **TRAINING)
    return checkout, stories.undisturbed_weights(checkout, stories.start_undisturbed(checkout, "calm"))


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, prepared: tuple[Checkout, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Submitted | Exception]]:
    """Run the stories of a site that the collected tests request; return each training, or why its story failed."""
    options, table = SITES[request.param]
    mine = [test.callspec.params for test in request.session.items if test.module is request.module]
    requested = {each["story"] for each in mine if each["told"] == request.param}
    wanted = [story for story in table if story.tell.__name__ in requested]
    folder = tmp_path_factory.mktemp("site")

    def tell(story: Story) -> Submitted | Exception:
        name = story.tell.__name__
        shutil.copytree(
            prepared[0].folder, folder / name, ignore=shutil.ignore_patterns("results"), symlinks=True
        )
        run = Submitted(site, Checkout(folder / name), name)
        stories.edit(run.checkout, name, **TRAINING | {"resources": RESOURCES} | story.settings)
        try:
            story.tell(run)
        except Exception as error:
            return error
        finally:
            run.abandon()
        return run

    with cluster(folder / "slurm", options) as site:
        with ThreadPoolExecutor(3) as pool:
            ended = dict(
                zip(wanted, pool.map(lambda each: None if each.alone else tell(each), wanted), strict=True)
            )
        yield {each.tell.__name__: ended[each] or tell(each) for each in wanted}


@pytest.mark.parametrize(("told", "story"), STORIES, indirect=["told"], scope="module")
def test_a_disturbed_training_ends_as_if_undisturbed(
    request: pytest.FixtureRequest,
    told: dict[str, Submitted | Exception],
    story: str,
    prepared: tuple[Checkout, bytes],
) -> None:
    if isinstance(run := told[story], Exception):
        raise run
    site = request.node.callspec.params["told"]
    (expected,) = (each for each in SITES[site][1] if each.tell.__name__ == story)
    if expected.before == "refused":  # the story has looked at the sentence
        return
    stories.assert_trained_once(run, prepared[1])
    *before, last = run.reasons_of_training
    # On a busy machine there may be more than one attempt before the last.
    assert (set(before), last) == ({expected.before} - {""}, "finished")
    assert run.retries == 0 or expected.before == "out of memory"
    assert not expected.one_job or len(set(run.jobs)) == 1
    assert all(words in run.log for words in expected.logged)
    done = subprocess.run(
        [NNLO, "verify", run.folder], cwd=run.checkout.folder, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
