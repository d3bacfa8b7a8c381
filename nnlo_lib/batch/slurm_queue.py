"""Queries of Slurm: one squeue for all jobs, sacct for the jobs that it lacks, and tests of requests."""

import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnlo_lib.batch.job_states import NO_ANSWER, Fate, JobReport, QueueReport, fate_of_state, parse_minutes
from nnlo_lib.batch.refusals import RefusalKind, classify_refusal
from nnlo_lib.batch.scheduler_query import Command, run_command
from nnlo_lib.batch.surroundings import unexpected_variables

UNKNOWN_JOB, NO_ACCOUNTING = "Invalid job id", "accounting storage is disabled"
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
        self._failed_accounting_looks = 0

    def own_jobs(self) -> dict[str, JobReport] | None:
        """Return the jobs of this user that slurmctld knows by number, also by the own number of a task of an array; None without an answer."""
        answer = self._ask(
            "squeue", f"--user={os.getuid()}", "--all", "--array", "--states=all", "--noheader", "--format=%i|%T|%r|%S|%L|%A"
        )  # fmt: skip
        return None if answer is None or answer.returncode else _parse(answer.stdout)

    def look(self, numbers: Iterable[str]) -> QueueReport:
        """Return what Slurm knows about jobs; the report is incomplete if a query failed."""
        wanted = set(numbers)
        if (listed := self.own_jobs()) is None:
            return NO_ANSWER
        jobs = {number: listed[number] for number in wanted & listed.keys()}
        if not (missing := sorted(wanted - jobs.keys())):
            return QueueReport(jobs)
        answer = self._ask(
            "sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State", f"--jobs={','.join(missing)}"
        )  # fmt: skip
        if answer is None or (answer.returncode and NO_ACCOUNTING not in answer.stderr + answer.stdout):
            self._failed_accounting_looks += 1
            return QueueReport(jobs, is_complete=self._failed_accounting_looks >= ACCOUNTING_LOOKS)
        self._failed_accounting_looks = 0
        found = _parse(answer.stdout)
        return QueueReport(jobs | {number: found[number] for number in missing if number in found})

    def cancel(self, number: str) -> bool:
        """Make sure that a job does not run any more; return False if there was no answer. An unknown job is canceled."""
        answer = self._ask("scancel", number)
        return answer is not None and (not answer.returncode or UNKNOWN_JOB in answer.stderr)

    def find_submitted(self, name: str, comment: str, logs: Path) -> list[str] | None:
        """Return the numbers of this user's jobs with a comment and a name, or with a log in a folder; None without an answer.

        Some sites rewrite names and comments. The state of the jobs is any. Without a `name`, the comment is unique; `logs` is for logs
        of this job alone, as far as jobs from the current folder are concerned.
        """
        answer = self._ask(
            "squeue", f"--user={os.getuid()}", "--all", "--states=all", "--noheader", f"--Format={SUBMITTED_FIELDS}"
        )  # fmt: skip
        if answer is None or answer.returncode:
            return None
        rows = [[field.strip() for field in line.split("\t")] for line in answer.stdout.splitlines()]
        here = str(logs.absolute()), str(Path.cwd())
        return [
            number
            for number, own_name, text, folder, log, *_ in (row for row in rows if len(row) > 4)
            if (text == comment and name in ("", own_name)) or (os.path.dirname(log), folder) == here
        ]

    def _ask(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
        clusters = [f"--clusters={','.join(sorted(self._clusters))}"] if self._clusters else []
        return self._run(program, *clusters, *arguments)


def _parse(text: str) -> dict[str, JobReport]:
    """Return the jobs in lines of %i|%T|%r|%S|%L|%A, or only the first of these fields."""
    jobs: dict[str, JobReport] = {}
    for line in text.splitlines():
        number, state, reason, start, left, own_number = [*line.strip().split("|"), *[""] * 6][:6]
        reason, start = ("" if each in ("N/A", "None") else each for each in (reason, start))
        is_pending = (fate := fate_of_state(state)) is Fate.PENDING
        report = JobReport(
            fate,
            state,
            reason,
            start if is_pending else "",
            None if is_pending else parse_minutes(left),
        )
        jobs |= {number: report} | ({own_number: report} if own_number else {})
    return jobs


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
        if not refusal.kind.passes and is_answer:
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
    for name, value in unexpected_variables(os.environ).items():
        if (answer := run("env", "-u", name, *test)) and not answer.returncode:
            return f"{name}={value} of the environment does not go together with what each job asks ({words}); unset {name}"
    return ""
