"""Why jobs do not start: reasons of Slurm 20.11 to 25.05 and of LSF, which of them pass, and what a user must do about the others.

Slurm has a name for each reason (`AccountNotAllowed`; job_reason_codes of its manual), but slurmctld writes a sentence in place of some
(`Job's account not permitted to use this partition (gpu allows ours not theirs)`), and scontrol writes underscores in place of the spaces.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping

from nnlo_lib.batch.job_states import COMPLETING, Fate, JobReport

INTERVAL_S = 300.0  # between lines about jobs that wait for their turn
UNKNOWN_REASON_S = 60.0  # after which a reason that is in neither table is shown
_RELEASE = "`scontrol release {job}`"
_LESS = "ask for less (parallel, resources), or ask the site for a higher limit"
_NODES = "ask the site when the nodes return"
# Start of a reason, in small letters without any other character; what to do.
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"jobhelduser|jobrequeuedin(held|specialexit)state", _RELEASE),
    (r"jobholdmaxrequeue", f"Slurm has queued it again too often: read its log, then {_RELEASE}"),
    (r"jobheldadmin|burstbuffer(?!resources|stagein$)", f"ask the site why the job is held, then {_RELEASE}"),
    (r"(launch|userenvretrieval)failedrequeuedheld", f"ask the site about the node, then {_RELEASE}"),
    (r"joblaunchfailure|systemfailure", "ask the site about the node"),
    (r"partitiontimelimit", "lower resources.runtime, or set resources.partition"),
    (r"partitionnodelimit", "lower resources.nodes, or set resources.partition"),
    (r"partitionconfig", "ask for less (parallel, resources), or set resources.partition"),
    (r"partition(down|inactive)", "set resources.partition, or ask the site when the partition opens"),
    (r"accountnotallowed|jobsaccountnot", "set resources.account or resources.partition"),
    (r"invalidaccount", "set resources.account"),
    (r"invalidqos", "set nnlo-slurm-qos in the profile"),
    (r"qosnotallowed|jobsqosnot", "set nnlo-slurm-qos in the profile, or resources.partition"),
    (r"(assoc|qos)max\w*wallduration", "lower resources.runtime"),
    (r"(assoc|qos)max\w*per(job|node)|maxmemperlimit|accountingpolicy", _LESS),
    (r"qosmin", "ask for more (parallel, resources), or set nnlo-slurm-qos in the profile"),
    # The budget of an account is used up; limits of what runs at the same time pass.
    (r"(assoc|qos)grp(?!\w*runminutes)\w*(minutes|walllimit)|(association|qos)timelimit",
     "set resources.account, or ask the site: the budget of the account is used up"),
    (r"badconstraints", "ask for less (parallel, resources): no node can run the job"),
    (r"jobsrequestedlicenses", "correct the licenses in the profile"),
    (r"dependencyneversatisfied|deadline", "`scancel {job}`"),
    (r"reservation(deleted|invalid)|problemusingreservation", "set nnlo-slurm-reservation in the profile"),
    (r"reqnodenotavailreservedformaintenance", "wait, or lower resources.runtime so that the job ends before the maintenance"),
    (r"reqnodenotavail(?!maybereserved)|nodedown", _NODES),
    (r".*suspendedby", "`bresume {job}`"),  # LSF: PSUSP
)  # fmt: skip
PASSES = re.compile(
    r"(none|null|prolog|priority|dependency|resources|begintime|licenses|association(job|resource)limit|qos(job|resource)limit|"
    r"qosusagethreshold|reservation|frontenddown|scheddefer|cleaning|constraints|fedjoblock|jobarraytasklimit|power(notavail|reserved)|"
    r"burstbuffer|(assoc|qos)grp|assocmax(jobs|submit)|qosmax\w+peruser|max\w+peraccount|reqnodenotavailmaybereserved|nodesrequiredforjob)|$"
)
# States of jobs that Slurm holds, whatever the reason says.
HELD_STATES = ("SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD")


def remedy_of(report: JobReport, job: str) -> str | None:
    """Return what a user must do so that a job starts, with its number; empty if waiting is enough, None if the reason is unknown."""
    letters = re.sub(r"[\W_]+", "", report.reason).lower()
    found = next((remedy for pattern, remedy in REMEDIES if re.match(pattern, letters)), "")
    if report.state in HELD_STATES:
        found = found or _RELEASE
    elif report.fate is not Fate.PENDING and not (report.state == COMPLETING and _RELEASE in found):
        return ""  # a reason of a job that runs or ends
    if not found and report.state != "PEND" and not PASSES.match(letters):  # LSF has sentences without number
        return None
    return found.format(job=job)


class PendingExplainer:
    """Lines about pending jobs; `say` prints one, `clock` returns seconds."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._named: set[tuple[str, str]] = set()
        self._unknown_since: dict[tuple[str, str], float] = {}
        self._next_line = clock() + INTERVAL_S

    def explain(self, reports: Mapping[str, JobReport], names: Mapping[str, str]) -> None:
        """Print what is new about the pending jobs; `reports` and `names`, what each job does, are by number."""
        others: Counter[str] = Counter()
        for number, report in reports.items():
            remedy, case = remedy_of(report, number), (number, report.reason or report.state)
            if remedy is None:
                since = self._unknown_since.setdefault(case, self._clock())
                if self._clock() >= since + UNKNOWN_REASON_S:
                    remedy = f"whether this passes is unknown: `scontrol show job {number}`, or ask the site"
            if remedy and case not in self._named:
                self._named.add(case)
                self._say(f"job {number} ({names[number]}) does not start: {case[1]}; {remedy}")
            elif not remedy and report.fate is Fate.PENDING:
                others[report.reason or "no reason given"] += 1
        if others and self._clock() >= self._next_line:
            self._next_line = self._clock() + INTERVAL_S
            reasons = ", ".join(f"{reason} {count}" for reason, count in others.most_common())
            self._say(f"jobs that wait in the queue: {others.total()} ({reasons})")
