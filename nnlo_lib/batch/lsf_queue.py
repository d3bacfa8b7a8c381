"""Queries of LSF: one bjobs for all jobs, then bhist and bacct for the jobs that LSF has purged; parameters of the site."""

import getpass
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from nnlo_lib.batch.job_states import NO_ANSWER, JobReport, QueueReport, lsf_report
from nnlo_lib.batch.scheduler_query import Command, query_scheduler, run_command

FIELDS = "jobid stat exit_reason pend_reason estimated_start_time time_left job_name delimiter='|'"
NONE_FOUND = re.compile(r"No (unfinished |matching )?job found")
NOT_FOUND = re.compile(r"Job <(\d+)> is not found")
ENDED = re.compile(r"already finished|No matching job found|is not found")
ENDS = re.compile(r"Donesuccessfully|Completed<(done|exit)>;?(TERM_[A-Z_]*[A-Z])?")


class LsfQueue:
    """Queries of mbatchd and of its event and accounting files."""

    def __init__(self, run: Command = run_command) -> None:
        self._run = run

    def own_jobs(self) -> dict[str, JobReport] | None:
        """Return the unfinished jobs of this user by number; None without an answer."""
        text = self._list("-u", getpass.getuser())
        return None if text is None else _parse(text)

    def look(self, numbers: Iterable[str]) -> QueueReport:
        """Return what LSF knows about jobs; the report is incomplete if LSF did not answer about a job."""
        wanted = set(numbers)
        answer = self._run("bjobs", "-a", "-noheader", "-o", FIELDS, *sorted(wanted))
        if answer is None:
            return NO_ANSWER
        listed = _parse(answer.stdout)
        jobs = {number: listed[number] for number in wanted & listed.keys()}
        # bjobs ends with an error if it does not know one of the jobs.
        missing = wanted - set(jobs)
        text = answer.stdout + answer.stderr
        purged = missing if NONE_FOUND.search(text) else missing & set(NOT_FOUND.findall(text))
        return QueueReport(jobs | self._look_in_history(purged), is_complete=purged == missing)

    def cancel(self, *numbers: str) -> bool:
        """Make sure that jobs do not run any more; return False if there was no answer. An unknown job is canceled."""
        answer = self._run("bkill", *numbers)
        return answer is not None and (not answer.returncode or bool(ENDED.search(answer.stderr)))

    def find_submitted(self, name: str) -> list[str] | None:
        """Return the numbers of the jobs with a name, whatever their state; None without an answer."""
        text = self._list("-a")
        return None if text is None else [row[0] for row in _rows(text) if row[-1] == name]

    def _list(self, *options: str) -> str | None:
        """Return the lines of bjobs, or None without an answer."""
        answer = self._run("bjobs", "-noheader", *options, "-o", FIELDS)
        if answer is None or (answer.returncode and not NONE_FOUND.search(answer.stdout + answer.stderr)):
            return None
        return answer.stdout

    def known_queues(self) -> str:
        """Return a phrase with the names of the queues, or an empty string if LSF does not answer."""
        answer = self._run("bqueues", "-w")
        rows = answer.stdout.splitlines()[1:] if answer and not answer.returncode else []
        names = sorted(row.split()[0] for row in rows if row.strip())
        return f"known: {', '.join(names)}" if names else ""

    def _look_in_history(self, numbers: set[str]) -> dict[str, JobReport]:
        """Return how purged jobs ended, as far as bhist and bacct know; some sites forbid both."""
        found: dict[str, JobReport] = {}
        for command in ("bhist", "bacct"):
            if missing := sorted(numbers - set(found)):
                answer = self._run(command, "-l", *missing)
                found |= _parse_history(answer.stdout, numbers) if answer else {}
        return found


def lsf_record(number: str) -> JobReport | None:
    """Return the job as bjobs prints it, or None if LSF does not respond or has purged it."""
    return _parse(query_scheduler("bjobs", "-a", "-noheader", "-o", FIELDS, number)).get(number)


def _rows(text: str) -> list[list[str]]:
    rows = (line.strip().split("|", 6) for line in text.splitlines())
    return [[field.strip().removeprefix("-") for field in row] for row in rows if len(row) == 7]


def _parse(text: str) -> dict[str, JobReport]:
    return {row[0]: lsf_report(*row[1:6]) for row in _rows(text)}


def _parse_history(text: str, wanted: set[str]) -> dict[str, JobReport]:
    """Return the last end of each job in the output of `bhist -l` or `bacct -l`."""
    # Both break lines at a fixed width, also inside words.
    sections = re.split(r"Job<(\d+)>,", re.sub(r"\s+", "", text))
    found = {}
    for number, events in zip(sections[1::2], sections[2::2], strict=True):
        ends = list(ENDS.finditer(events))
        if ends and number in wanted:
            found[number] = lsf_report("EXIT" if ends[-1][1] == "exit" else "DONE", ends[-1][2] or "")
    return found


def site_parameters(
    run: Command = run_command, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the parameters of LSF that this site lets its users read; LSF's defaults hold for the others.

    These are the parameters of `badmin showconf mbd`, the name of the cluster and its default queue, under the names that the
    upstream plugin expects; some sites refuse badmin, lsclusters or the file lsb.params.
    """
    shown = run("badmin", "showconf", "mbd")
    pairs = (line.split("=", 1) for line in (shown.stdout.splitlines() if shown else ()) if "=" in line)
    found = {name.strip(): value.strip() for name, value in pairs}
    clusters = run("lsclusters", "-w")
    rows = clusters.stdout.splitlines()[1:] if clusters else []
    cluster = next((row.split()[0] for row in rows if row.strip()), "")
    if cluster and "LSF_CONFDIR" in found:
        with suppress(OSError):
            params = Path(found["LSF_CONFDIR"], "lsbatch", cluster, "configdir", "lsb.params").read_text()
            if queue := re.search(r"^\s*DEFAULT_QUEUE\s*=\s*([^#\n]+)", params, re.MULTILINE):
                found["DEFAULT_QUEUE"] = queue[1].strip()
    return found | {
        "LSF_CLUSTER": cluster,
        "LSF_MEMFMT": environment.get("SNAKEMAKE_LSF_MEMFMT", "percpu").lower(),
    }
