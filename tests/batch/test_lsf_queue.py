"""Looks at LSF through scripted commands: what bjobs, bhist, bacct and badmin print, and what they do not."""

import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nnlo_lib.batch.job_states import Fate, lsf_report
from nnlo_lib.batch.lsf_queue import LsfQueue, site_parameters
from nnlo_lib.cluster.job_watch import JobWatch, StatusFile

Answer = tuple[int, str, str]  # status, stdout and stderr of a command
REST = "-|-|-|-|x\n"  # what bjobs prints after the number and the state of a job without reasons

# bjobs(1) of LSF 10.1, JOB STATUS
STATES = {
    "pending": ["PEND", "PSUSP", "PROV", "WAIT"],
    "running": ["RUN", "SSUSP", "USUSP", "UNKWN", "ZOMBI", "A_STATE_OF_A_NEWER_LSF"],
    "done": ["DONE", "POST_DONE", "POST_ERR"],
    "failed": ["EXIT"],
}
# "Termination reasons displayed by bacct, bhist, and bjobs"
REASONS = {
    "canceled": ["ADMIN", "BUCKET_KILL", "FORCE_ADMIN", "FORCE_OWNER", "OWNER"],
    "interrupted": [
        "CHKPNT", "CSM_ALLOC", "KUBE", "LOAD", "MC_RECALL", "OTHER", "PREEMPT", "REMOVE_HUNG_JOB",
        "REQUEUE_ADMIN", "REQUEUE_OWNER", "RMS", "SLURM", "WINDOW", "ZOMBIE",
    ],
    "failed": [
        "CPULIMIT", "CWD_NOTEXIST", "DATA", "DEADLINE", "EXTERNAL_SIGNAL", "MEMLIMIT", "ORPHAN_SYSTEM", "PROCESSLIMIT",
        "RUNLIMIT", "SWAP", "THREADLIMIT", "UNKNOWN",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("fate", "states"), STATES.items())
def test_states(fate: str, states: list[str]) -> None:
    assert {lsf_report(state).fate for state in states} == {Fate(fate)}


@pytest.mark.parametrize(("fate", "reasons"), REASONS.items())
def test_termination_reasons(fate: str, reasons: list[str]) -> None:
    assert {lsf_report("EXIT", f"TERM_{reason}: job killed").fate for reason in reasons} == {Fate(fate)}
    assert {lsf_report("DONE", f"TERM_{reason}: job killed").fate for reason in reasons} == {Fate.DONE}


def test_the_report_has_the_words_of_lsf() -> None:
    assert lsf_report("EXIT", "TERM_PREEMPT: ...").state == "PREEMPTED"
    assert lsf_report("EXIT", "TERM_OWNER: ...").state == "EXIT (TERM_OWNER)"
    assert lsf_report("EXIT", "").state == "EXIT"
    assert lsf_report("PSUSP", "", "The job was suspended by the user while pending").reason
    assert not lsf_report("RUN", "", "stale").reason


# bhist(1) and bacct(1) break lines at a fixed width, also inside words.
BHIST = """
Job <7>, Job Name <x>, User <me>, Project <default>, Command <sleep 300>
Fri Oct  5 17:49:35: Submitted from host <a>, to Queue <normal>, CWD <$HOME>;
Fri Oct  5 17:50:35: Dispatched 1 Task(s) on Host(s) <a3191>;
Fri Oct  5 17:51:30: Exited with exit code 130. The CPU time used is 0.0 sec
                     onds;
Fri Oct  5 17:51:30: Completed <exit>; TERM_PREE
                     MPT: job killed after preemption;
------------------------------------------------------------------------------

Job <8>, Job Name <y>, User <me>, Project <default>, Command <sleep 300>
Fri Oct  5 17:51:30: Completed <exit>; TERM_REQUEUE_OWNER: job killed and reque
                     ued by owner;
Fri Oct  5 17:52:30: Done success
                     fully. The CPU time used is 0.0 seconds;
"""
BACCT = """
Accounting information about jobs that are:
  - submitted by all users.
------------------------------------------------------------------------------
Job <9>, User <me>, Project <default>, Status <EXIT>, Queue <pub.1h>,
                     Command <sleep 300>
Fri Oct  5 17:51:30: Completed <exit>; TERM_OWNER: job killed by owner.
"""


class Lsf:
    """Scripted LSF: `answers` to commands; a missing command does not answer."""

    def __init__(self, **answers: Answer) -> None:
        self.answers, self.calls = answers, []

    def __call__(self, *command: str) -> "CompletedProcess[str] | None":
        self.calls.append(command)
        found = self.answers.get(command[0])
        return CompletedProcess(command, *found) if found else None

    def fates(self, *numbers: str) -> tuple[dict[str, Fate], bool]:
        """Return what a look at jobs finds, and whether the report is complete."""
        report = LsfQueue(self).look(numbers)
        return {number: job.fate for number, job in report.jobs.items()}, report.is_complete


def test_one_bjobs_for_all_jobs() -> None:
    lines = f"5|RUN|{REST}6|PEND|-|Not enough slots: 2 hosts;Closed: 1 host;|-|-|x\n7|EXIT|TERM_OWNER: job killed by owner{REST[1:]}"
    lsf = Lsf(bjobs=(0, lines, ""))
    assert lsf.fates("7", "5", "6") == ({"5": Fate.RUNNING, "6": Fate.PENDING, "7": Fate.CANCELED}, True)
    (call,) = lsf.calls
    assert call[-3:] == ("5", "6", "7")
    assert LsfQueue(lsf).look(["6"]).jobs["6"].reason == "Not enough slots: 2 hosts;Closed: 1 host"


DOWN, SILENT = (
    (255, "", "LSF is down. Please wait ..."),
    (0, "", "batch system daemon not responding ... still trying"),
)


@pytest.mark.parametrize(
    "answers", [{}, {"bjobs": DOWN}, {"bjobs": SILENT}], ids=["time-out", "error", "status 0"]
)
def test_a_bjobs_that_fails_knows_nothing(answers: dict[str, Answer]) -> None:
    lsf = Lsf(**answers)
    assert lsf.fates("5") == ({}, False)
    assert len(lsf.calls) == 1


def test_a_bjobs_that_ends_early_tells_nothing_about_the_rest() -> None:
    lsf = Lsf(bjobs=(255, f"5|RUN|{REST}", "Connection reset by peer"))
    assert lsf.fates("5", "6") == ({"5": Fate.RUNNING}, False)


@pytest.mark.parametrize("text", ["Job <7> is not found", "No unfinished job found", "No matching job found", "No job found"])  # fmt: skip
@pytest.mark.parametrize("history", [None, (255, "", "No matching job found"), (0, "", "")])
def test_a_purged_job_without_history_is_unknown(text: str, history: Answer | None) -> None:
    answers = {"bhist": history, "bacct": history} if history else {}
    assert Lsf(bjobs=(255, "", text), **answers).fates("7") == ({}, True)


def test_purged_jobs_are_looked_up_in_the_event_and_accounting_files() -> None:
    missing = "".join(f"Job <{number}> is not found\n" for number in (7, 8, 9))
    lsf = Lsf(bjobs=(255, f"5|RUN|{REST}", missing), bhist=(0, BHIST, ""), bacct=(0, BACCT, ""))
    found, _ = lsf.fates("5", "7", "8", "9")
    assert found == {"5": Fate.RUNNING, "7": Fate.INTERRUPTED, "8": Fate.DONE, "9": Fate.CANCELED}
    assert lsf.calls[1:] == [("bhist", "-l", "7", "8", "9"), ("bacct", "-l", "9")]


@pytest.mark.parametrize(
    ("answer", "is_canceled"),
    [
        ((0, "Job <5> is being terminated", ""), True),
        ((255, "", "Job <5>: Job has already finished"), True),
        ((255, "", "Job <5>: No matching job found"), True),
        (DOWN, False),
        (None, False),
    ],
)
def test_jobs_are_canceled_in_one_call_unless_one_may_still_run(
    answer: Answer | None, is_canceled: bool
) -> None:
    lsf = Lsf(**({"bkill": answer} if answer else {}))
    assert LsfQueue(lsf).cancel("5", "6") is is_canceled
    assert lsf.calls == [("bkill", "5", "6")]


def test_a_job_is_found_by_its_name() -> None:
    jobs = {5: "x", 6: "x___(run)", 7: "x___(run)|"}
    lsf = Lsf(bjobs=(0, "".join(f"{n}|RUN|-|-|-|-|{name}\n" for n, name in jobs.items()), ""))
    assert LsfQueue(lsf).find_submitted("x___(run)") == ["6"]
    assert LsfQueue(Lsf(bjobs=(255, "", "No job found"))).find_submitted("x") == []
    assert LsfQueue(Lsf()).find_submitted("x") is None  # no answer


def test_known_queues_are_named() -> None:
    queues = "QUEUE_NAME      PRIO STATUS\nnormal   30  Open:Active\nidle  20  Open:Active\n"
    assert LsfQueue(Lsf(bqueues=(0, queues, ""))).known_queues() == "known: idle, normal"
    assert LsfQueue(Lsf()).known_queues() == ""


@pytest.mark.parametrize(("written", "expected"), [("done", Fate.DONE), ("failed", Fate.FAILED)])
def test_the_status_file_judges_a_purged_job(tmp_path: Path, written: str, expected: Fate) -> None:
    (file := tmp_path / "x.status").write_text(written)
    now, lsf = [0], Lsf(bjobs=(255, "", "Job <5> is not found"))
    watch = JobWatch(LsfQueue(lsf), lambda: now[0], warn=lambda line: None)
    fates = []
    for now[0] in range(0, 60, 2):
        fates.append(watch.judge({"5": StatusFile(file)})["5"].fate)
    assert expected in fates
    assert set(fates) <= {expected, Fate.RUNNING}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "fate", "status"), [("true", Fate.DONE, 0), ("(exit 3)", Fate.FAILED, 1)]
)
def test_a_job_ends_with_the_success_that_its_status_file_records(
    tmp_path: Path, command: str, fate: Fate, status: int
) -> None:
    file = StatusFile(tmp_path / "a name.status")
    done = subprocess.run(["bash", "-c", f"{file.prefix} && {command} && {file.suffix}"], check=False)
    assert (file.fate, done.returncode) == (fate, status)


@pytest.mark.parametrize(
    "forbidden", [{}, {"badmin": None}, {"badmin": ""}, {"lsclusters": None}, {"lsclusters": ""}]
)
def test_parameters_of_the_site_and_without_one_the_default_of_lsf(tmp_path, forbidden):
    (folder := tmp_path / "lsbatch/c1/configdir").mkdir(parents=True)
    queues = "Begin Parameters\n# DEFAULT_QUEUE = old\nDEFAULT_QUEUE = normal # as ever\n"
    (folder / "lsb.params").write_text(queues)
    shown = f"BADMIN\n LSB_SHAREDIR = /lsf/work\n LSF_CONFDIR = {tmp_path}\n LSF_UNIT_FOR_LIMITS = GB\n"
    said = {"badmin": shown, "lsclusters": "CLUSTER_NAME STATUS\nc1 ok\n"} | forbidden

    def run(program, *_):
        return None if said[program] is None else CompletedProcess((), 0, said[program], "")

    found = site_parameters(run, {"SNAKEMAKE_LSF_MEMFMT": "perJob"})
    assert found["LSF_MEMFMT"] == "perjob"
    assert found.get("DEFAULT_QUEUE") == (None if forbidden else "normal")
    assert found.get("LSF_UNIT_FOR_LIMITS") == (None if "badmin" in forbidden else "GB")
