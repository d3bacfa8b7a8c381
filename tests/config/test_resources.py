"""Resources that a run requests from a machine or a scheduler, computed from its configuration."""

import pytest

from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources


def resources(parallel, **asked):
    return RunResources(Run.model_validate({"parallel": parallel, "resources": asked}))


@pytest.mark.parametrize(
    ("parallel", "wanted"),
    [
        ({"ranks": 4, "threads_per_rank": 3}, (4, 12, 2)),
        ({"ranks": 8, "transport": "simulated"}, (1, 1, 1)),
    ],
)
def test_processes_cores_and_nodes(parallel, wanted):
    asked = resources(parallel, nodes=2)
    assert (asked.processes, asked.cores, asked.nodes) == wanted


@pytest.mark.parametrize(
    ("parallel", "wanted"),
    [
        ({"ranks": 1, "gpus_per_rank": 1, "ranks_per_gpu": 3}, 3),
        ({"ranks": 4, "gpus_per_rank": 1}, 1),
        ({"ranks": 1}, 1),
    ],
)
def test_trainings_that_share_a_gpu(parallel, wanted):
    assert resources(parallel).trainings_per_gpu == wanted


def test_the_site_is_asked_only_for_what_is_set():
    assert not any(resources({"ranks": 2}).site.values())
    asked = resources({"ranks": 2, "gpus_per_rank": 1}, partition="short", account="me").site
    assert asked == {
        "slurm_partition": "short", "slurm_account": "me", "lsf_queue": "short", "lsf_project": "me",
        "gpu": 2, "tasks_per_gpu": 1,
    }  # fmt: skip
