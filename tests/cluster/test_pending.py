"""Lines about pending jobs."""

import pytest

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.refusals import PendingExplainer, remedy_of


@pytest.mark.parametrize(
    "reason", ["PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxWallDurationPerJobLimit", "JobHeldUser",
               "QOSMaxCpuPerJobLimit", "AccountNotAllowed", "(launch failed requeued held)", "BadConstraints"],
)  # fmt: skip
def test_what_does_not_pass_has_a_remedy(reason):
    assert remedy_of(reason)


@pytest.mark.parametrize(
    "reason", ["Priority", "Resources", "None", "BeginTime", "QOSMaxJobsPerUserLimit", "Dependency"]
)
def test_what_passes_has_none(reason):
    assert not remedy_of(reason)


def test_one_line_for_each_stuck_job_and_one_for_all_others():
    said, now = [], [0.0]
    explainer = PendingExplainer(said.append, lambda: now[0])
    reports = {
        "1": JobReport(Fate.PENDING, "PENDING", "PartitionTimeLimit"),
        "2": JobReport(Fate.PENDING, "PENDING", "Priority"),
        "3": JobReport(Fate.PENDING, "PENDING", "Priority"),
        "4": JobReport(Fate.RUNNING, "RUNNING", "None"),
    }
    names = {number: f"train run{number}" for number in reports}
    for seconds in range(0, 601, 10):
        now[0] = seconds
        explainer.explain(reports, names)
    stuck = [line for line in said if "train run1" in line]
    assert len(stuck) == 1
    assert "PartitionTimeLimit; lower resources.runtime" in stuck[0]
    assert [line for line in said if line not in stuck] == ["jobs that wait in the queue: 2 (Priority 2)"] * 2
