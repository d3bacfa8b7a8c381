"""Reasons of pending jobs: each reason of Slurm 20.11 to 25.05, the sentences in place of some, and LSF's; what passes and what does not."""

import pytest

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.pending_reasons import PendingExplainer, remedy_of

TRES = ["BB", "Billing", "Energy", "GRES", "License", "Unknown"]
# job_state_reason.c of Slurm 25.05, with the names of 20.11 to 24.11 (slurm_protocol_defs.c) that it lacks.
PASSES = [
    "None", "Prolog", "Priority", "Dependency", "Resources", "BeginTime", "Licenses", "AssociationJobLimit", "AssociationResourceLimit",
    "Reservation", "FrontEndDown", "SchedDefer", "QOSUsageThreshold", "QOSJobLimit", "QOSResourceLimit", "Cleaning", "JobArrayTaskLimit",
    "BurstBufferResources", "BurstBufferStageIn", "PowerNotAvail", "PowerReserved", "FedJobLock", "Constraints",
    # Limits of what runs, or is submitted, at the same time.
    *(f"{who}Grp{what}" for who in ("QOS", "Assoc") for what in
      ("CpuLimit", "CPURunMinutesLimit", "JobsLimit", "MemLimit", "NodeLimit", "SubmitJobsLimit", "NodeRunMinutes", *TRES, *(f"{t}RunMinutes" for t in TRES))),
    "QOSGrpMemoryRunMinutes", "AssocGrpMemRunMinutes", "AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "QOSMaxCpuPerUserLimit",
    "QOSMaxJobsPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxSubmitJobPerUserLimit", "QOSMaxMemoryPerUser", *(f"QOSMax{t}PerUser" for t in TRES),
    "MaxCpuPerAccount", "MaxNodePerAccount", "MaxMemoryPerAccount", "MaxJobsPerAccount", "MaxSubmitJobsPerAccount", *(f"Max{t}PerAccount" for t in TRES),
    # Sentences.
    "ReqNodeNotAvail, May be reserved for other job",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    "(null)", "",
]  # fmt: skip
# Reason: words of the remedy.
REMEDIES = {
    "PartitionNodeLimit": "resources.nodes", "PartitionTimeLimit": "resources.runtime", "PartitionDown": "resources.partition",
    "PartitionInactive": "resources.partition", "PartitionConfig": "resources", "BadConstraints": "no node can run",
    "AccountNotAllowed": "resources.account", "InvalidAccount": "resources.account", "InvalidQOS": "nnlo-slurm-qos", "QOSNotAllowed": "nnlo-slurm-qos",
    "Job's account not permitted to use this partition (gpu allows ours not theirs)": "resources.account",
    "Job's account not permitted to use this partition (gpu denies theirs including theirs)": "resources.account",
    "Job's account not known, so it can't use this partition (gpu allows ours)": "resources.account",
    "Job's QOS not permitted to use this partition (gpu allows high not normal)": "nnlo-slurm-qos",
    "Job's QOS not known, so it can't use this partition (gpu allows high)": "nnlo-slurm-qos",
    "Job's requested licenses are invalid: matlab": "licenses",
    "JobHeldUser": "`scontrol release 22`", "JobHeldAdmin": "ask the site why", "JobHoldMaxRequeue": "`scontrol release 22`",
    "job requeued in held state": "`scontrol release 22`", "job requeued in special exit state": "`scontrol release 22`",
    "launch failed requeued held": "about the node, then `scontrol release 22`",
    "user env retrieval failed requeued held": "about the node, then `scontrol release 22`",
    "BurstBufferOperation": "`scontrol release 22`", "burst_buffer/lua: Stage-in failed": "`scontrol release 22`",
    "Burst buffer stage-in timeout": "`scontrol release 22`",
    "DependencyNeverSatisfied": "`scancel 22`", "DeadLine": "`scancel 22`", "NodeDown": "ask the site", "JobLaunchFailure": "ask the site",
    "SystemFailure": "ask the site", "ReqNodeNotAvail": "ask the site", "ReqNodeNotAvail, UnavailableNodes:n[1-3]": "ask the site",
    "ReqNodeNotAvail(Unavailable:n1)": "ask the site", "ReqNodeNotAvail, Reserved for maintenance": "resources.runtime",
    "ReservationDeleted": "nnlo-slurm-reservation", "ReservationInvalid": "nnlo-slurm-reservation",
    "Problem using reservation": "nnlo-slurm-reservation", "AccountingPolicy": "ask for less", "MaxMemPerLimit": "ask for less",
    "QOSMaxWallDurationPerJobLimit": "lower resources.runtime", "AssocMaxWallDurationPerJobLimit": "lower resources.runtime",
    **{f"{who}Max{what}": "ask for less" for who in ("QOS", "Assoc") for what in
       ("CpuPerJobLimit", "CpuMinutesPerJobLimit", "NodePerJobLimit", "CpuPerNode", "NodeMinutesPerJob", *(f"{t}PerJob" for t in TRES),
        *(f"{t}PerNode" for t in TRES), *(f"{t}MinutesPerJob" for t in TRES))},
    **dict.fromkeys(["QOSMaxMemoryPerJob", "QOSMaxMemoryPerNode", "QOSMaxMemoryMinutesPerJob", "AssocMaxMemPerJob", "AssocMaxMemPerNode",
                     "AssocMaxMemMinutesPerJob"], "ask for less"),
    **dict.fromkeys(["QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", *(f"QOSMin{t}" for t in TRES)], "ask for more"),
    # What is used up, by past jobs, too.
    **{f"{who}Grp{what}": "budget" for who in ("QOS", "Assoc") for what in
       ("CPUMinutesLimit", "WallLimit", "NodeMinutes", *(f"{t}Minutes" for t in TRES))},
    **dict.fromkeys(["QOSGrpMemoryMinutes", "AssocGrpMemMinutes", "AssociationTimeLimit", "QOSTimeLimit"], "budget"),
}  # fmt: skip


def pending(reason: str, state: str = "PENDING") -> JobReport:
    return JobReport(Fate.PENDING, state, reason)


def spellings(reason: str) -> list[str]:
    """Return a reason as squeue %r, squeue %R and scontrol print it."""
    return [reason, f"({reason})", reason.replace(" ", "_")]


@pytest.mark.parametrize("reason", PASSES)
def test_what_passes_has_no_remedy(reason):
    assert [remedy_of(pending(each), "22") for each in spellings(reason)] == ["", "", ""]


@pytest.mark.parametrize("reason", REMEDIES)
def test_what_does_not_pass_has_a_remedy(reason):
    for each in spellings(reason):
        assert REMEDIES[reason] in remedy_of(pending(each), "22"), each


def test_a_reason_of_a_newer_slurm_is_neither():
    assert remedy_of(pending("WaitingForTheMoon"), "22") is None
    assert remedy_of(pending("Load information unavailable: 3 hosts;", "PEND"), "22") == "", (
        "LSF has many sentences"
    )
    assert (
        remedy_of(pending("The job was suspended by the user while pending", "PSUSP"), "22") == "`bresume 22`"
    )


@pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD"])
def test_a_state_in_which_slurm_holds_a_job_is_enough(state):
    assert remedy_of(pending("None", state), "22") == "`scontrol release 22`"


def test_a_job_that_still_ends_is_named_only_if_it_will_be_held():
    def ending(reason):
        return remedy_of(JobReport(Fate.RUNNING, "COMPLETING", reason), "22")

    assert ending("job requeued in held state") == "`scontrol release 22`"
    assert [ending(reason) for reason in ("NodeDown", "TimeLimit", "None")] == ["", "", ""]


def explained(reports, until, say_at=()):
    """Return the lines of looks each 10 s, with their times."""
    said, now = [], [0.0]
    explainer = PendingExplainer(lambda line: said.append((now[0], line)), lambda: now[0])
    for seconds in range(0, until + 1, 10):
        now[0] = seconds
        explainer.explain(reports, {number: f"train run{number}" for number in reports})
    return said


def test_one_line_for_each_stuck_job_and_one_for_all_others():
    said = explained(
        {"1": pending("PartitionTimeLimit"), "2": pending("Priority"), "3": pending("Priority"), "4": JobReport(Fate.RUNNING, "RUNNING", "None")}, 600
    )  # fmt: skip
    (stuck,) = [line for _, line in said if "train run1" in line]
    assert (
        stuck
        == "job 1 (train run1) does not start: PartitionTimeLimit; lower resources.runtime, or set resources.partition"
    )
    assert [line for _, line in said if line != stuck] == ["jobs that wait in the queue: 2 (Priority 2)"] * 2


def test_an_unknown_reason_that_stays_is_shown_as_it_is():
    said = explained({"1": pending("Waiting for the moon (full)")}, 200)
    ((seconds, line),) = said
    assert 60 <= seconds <= 120
    assert line.startswith("job 1 (train run1) does not start: Waiting for the moon (full); ")
    assert "`scontrol show job 1`" in line
    assert explained({"1": pending("Waiting for the moon")}, 50) == []
