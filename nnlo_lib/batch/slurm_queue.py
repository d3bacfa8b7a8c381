"""Queries of Slurm: one squeue for all jobs, sacct and scontrol for the jobs that it lacks, and tests of requests."""

import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnlo_lib.batch.job_states import NO_ANSWER, JobReport, QueueReport, fate_of_state
from nnlo_lib.batch.refusals import RefusalKind, classify_refusal
from nnlo_lib.batch.scheduler_query import Command, run_command
from nnlo_lib.batch.surroundings import EXPECTED_VARIABLES, variables_that_change_jobs

UNKNOWN_JOB = "Invalid job id"
# Each with its width, beyond which squeue cuts, and a tab. The log is absolute.
SUBMITTED_FIELDS = "JobArrayID:32\t,Name:256\t,Comment:1024\t,WorkDir:1024\t,STDOUT:1024\t"
# Looks in succession that wait for the accounting. A job that slurmctld has forgotten has ended, and only its state is missing.
ACCOUNTING_LOOKS = 5
MAX_TESTS_AT_ONCE = 8  # slurmctld answers each within about 10 ms if it is idle


class SlurmQueue:
    """Queries of slurmctld and of the accounting, if there is one.

    `clusters` are those to which jobs were submitted by name; the collection may grow. Empty for the cluster of this host.
    """

    def __init__(self, run: Command = run_command, clusters: Collection[str] = ()) -> None:
        self._run, self._clusters = run, clusters
        self._accounting: bool | None = None
        self._failed_accounting_looks = 0

    def look(self, numbers: Iterable[str]) -> QueueReport:
        """Return what Slurm knows about jobs; the report is incomplete if a query failed."""
        wanted = set(numbers)
        answer = self._ask(
            "squeue", f"--user={os.getuid()}", "--all", "--array", "--states=all", "--noheader", "--format=%i|%T|%r"
        )  # fmt: skip
        if answer is None or answer.returncode:
            return NO_ANSWER
        jobs = _parse(answer.stdout, wanted)
        if not (missing := wanted - set(jobs)):
            return QueueReport(jobs)
        accounted, accounting_answered = self._look_in_accounting(missing)
        purged = all(self._is_purged(number) for number in sorted(missing - set(accounted)))
        return QueueReport(jobs | accounted, is_complete=accounting_answered and purged)

    def cancel(self, number: str) -> bool:
        """Make sure that a job does not run any more; return False if there was no answer. An unknown job is canceled."""
        answer = self._ask("scancel", number)
        return answer is not None and (not answer.returncode or UNKNOWN_JOB in answer.stderr)

    def find_submitted(self, name: str, comment: str, logs: Path) -> list[str] | None:
        """Return the numbers of this user's jobs with a comment and a name, or with a log in a folder; None without an answer.

        Some sites rewrite names and comments. The state of the jobs is any.

        Args:
            name: name of the job; if empty, the comment is unique.
            logs: folder for logs of this job alone, as far as jobs from the current folder are concerned.
        """
        answer = self._ask(
            "squeue", f"--user={os.getuid()}", "--all", "--states=all", "--noheader", f"--Format={SUBMITTED_FIELDS}"
        )  # fmt: skip
        if answer is None or answer.returncode:
            return None
        rows = [[field.strip() for field in line.split("\t")] for line in answer.stdout.splitlines()]
        here = str(logs.absolute()), str(Path.cwd())
        return [
            row[0]
            for row in rows
            if len(row) > 4
            and (
                (row[2] == comment and (not name or row[1] == name))
                or (os.path.dirname(row[4]), row[3]) == here
            )
        ]

    def _look_in_accounting(self, numbers: set[str]) -> tuple[dict[str, JobReport], bool]:
        if not self._has_accounting():
            return {}, True
        answer = self._ask(
            "sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State", f"--jobs={','.join(sorted(numbers))}"
        )  # fmt: skip
        if answer is None or answer.returncode:
            self._failed_accounting_looks += 1
            return {}, self._failed_accounting_looks >= ACCOUNTING_LOOKS
        self._failed_accounting_looks = 0
        return _parse(answer.stdout, numbers), True

    def _ask(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
        clusters = [f"--clusters={','.join(sorted(self._clusters))}"] if self._clusters else []
        return self._run(program, *clusters, *arguments)

    def _has_accounting(self) -> bool:
        """Return whether this Slurm has an accounting; a failed query counts as one that has."""
        if self._accounting is None:
            answer = self._run("scontrol", "show", "config")
            if answer is None or answer.returncode:
                return True
            types = [line for line in answer.stdout.splitlines() if line.startswith("AccountingStorageType")]
            self._accounting = not (types and types[0].rstrip().endswith(("none", "(null)")))
        return self._accounting

    def _is_purged(self, number: str) -> bool:
        """Return True if slurmctld answers that it does not know a job."""
        answer = self._ask("scontrol", "show", "job", number)
        return answer is not None and answer.returncode != 0 and UNKNOWN_JOB in answer.stderr


def _parse(text: str, wanted: set[str]) -> dict[str, JobReport]:
    rows: Iterable[Sequence[str]] = (line.strip().split("|") for line in text.splitlines())
    return {
        row[0]: JobReport(fate_of_state(row[1]), row[1], row[2] if len(row) > 2 else "")
        for row in rows
        if len(row) > 1 and row[0] in wanted
    }


def submitted_number(output: str) -> str:
    """Return the number of a job from what `sbatch --parsable` and the site's own notices printed.

    Raises ValueError if no line, or more than one, consists of a number with an optional cluster.
    """
    lines = {line.strip() for line in output.splitlines()}
    numbers = [line.partition(";")[0] for line in lines if re.fullmatch(r"\d+(;\S+)?", line)]
    if len(numbers) != 1:
        raise ValueError(f"sbatch printed no line with only the number of a job: {output.strip()!r}")
    return numbers[0]


def memory_per_node(memory: int, nodes: int) -> int:
    """Return the MB of a node for a job with this memory in MB of all nodes: sbatch's `--mem` is per node."""
    return -(-memory // nodes)


def refused_requests(
    requests: Mapping[str, str], warn: Callable[[str], None], run: Command = run_command
) -> list[str] | None:
    """Return the different sentences of Slurm on requests that it would refuse, with their jobs, by `sbatch --test-only`.

    Return None if Slurm refuses none, but gave an answer that cannot be read, or none: one warning says so.

    Args:
        requests: names of jobs, by the shell command of sbatch that would submit them, without its script.
    """

    def test(command: str) -> "subprocess.CompletedProcess[str] | None":
        return run("sh", "-c", _tested(command))

    answers = [test(command) for command in list(requests)[:1]]
    if answers != [None]:  # otherwise the others would wait for an answer, too
        with ThreadPoolExecutor(MAX_TESTS_AT_ONCE) as pool:
            answers += pool.map(test, list(requests)[1:])
    refused: dict[str, list[str]] = {}
    unclear = ["no answer"] if None in answers else []
    for (command, name), answer in zip(requests.items(), answers, strict=False):
        if answer is None or not answer.returncode:
            continue
        refusal = classify_refusal(answer.stderr + answer.stdout)
        if blamed := blamed_variable(answer, run, "sh", "-c", _tested(command)):
            refused.setdefault(blamed, []).append(name)
            continue
        # slurmctld's own answer begins so; other words are of a shell or an sbatch that did not reach it.
        is_answer = refusal.kind is RefusalKind.PERMANENT or "allocation failure: " in answer.stderr
        if refusal.kind is not RefusalKind.TRANSIENT and is_answer:
            refused.setdefault(refusal.sentence, []).append(name)
        else:
            unclear.append(f"{name}: {refusal.sentence}")
    if unclear:
        warn(f"whether Slurm would accept all jobs is unknown; `sbatch --test-only`: {unclear[0]}")
    problems = [f"{', '.join(names)}: {sentence}" for sentence, names in refused.items()]
    return problems or (None if unclear else [])


def _tested(command: str) -> str:
    return f"{command} --test-only --wrap=true"


def blamed_variable(refusal: "subprocess.CompletedProcess[str]", run: Command, *test: str) -> str:
    """Return a sentence about the variable of the environment without which Slurm accepts a refused request; else an empty string.

    `test`: command that asks Slurm, without a submission.
    """
    words = "; ".join(line.removeprefix("sbatch: error: ") for line in refusal.stderr.strip().splitlines())
    for name, value in variables_that_change_jobs(os.environ).items():
        if (
            name not in EXPECTED_VARIABLES
            and (answer := run("env", "-u", name, *test))
            and not answer.returncode
        ):
            return f"{name}={value} of the environment does not go together with what each job asks ({words}); unset {name}"
    return ""
