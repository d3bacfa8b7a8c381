"""The table of all endings of a training."""

import signal
from dataclasses import dataclass

from helpers import ways_to_end as ways
from helpers.repository_copy import REPOSITORY
from helpers.ways_to_end import EndedTraining, WayToEnd, disturbed, failing, untouched

PAGE = REPOSITORY / "docs/reference/endings.md"
INTRODUCTION = """# Every way in which a training ends

Each row is a test: `nnlo run` on two MPI ranks (unless the row says otherwise) is brought to this end. The row shows the last line of the output, the exit status, the
reason in `state/attempts.jsonl`, and whether Snakemake or a requeue makes another attempt. A person who runs the command again always gets an attempt.
`<pid>`, `<host>`, `<n>` and `<folder>` stand for values that differ. [Exit statuses](exit_statuses.md) explains the reasons. The ways in which Slurm ends a job are tested in a
cluster ([test_slurm_stories.py](../../tests/slurm/test_slurm_stories.py)).
`NNLO_WRITE_OUTPUT=1 pytest tests/docs/test_endings_page.py` writes this page.
"""
HEAD = "| the end | last line | status | reason | next attempt |\n| --- | --- | ---: | --- | --- |"
ONE_RANK = {"ranks": 1}
# On a busy machine, ranks have sent no message for 6 s.
IMPATIENT = {"parallel": {"peer_timeout": 20}}


@dataclass(frozen=True)
class Ending:
    """A way in which a training ends, and what is expected: status, reason (empty: no record), words of the last line, output before."""

    title: str
    way: WayToEnd
    status: int
    reason: str
    words: str
    output: str = ""

    def row(self, seen: EndedTraining) -> str:
        """Return the row of the page."""
        line = seen.last_line.replace("|", "\\|").replace("`", "'")
        reason = f"`{seen.reason}`" if seen.reason else "no record"
        return f"| {self.title} | `{line}` | {seen.status} | {reason} | {seen.next_attempt} |"


GROUPS = {
    "Finished": [
        Ending("all epochs are trained", untouched(), 0, "finished", "results in "),
        Ending("the command again after that", ways.repeated, 0, "finished", "accuracy"),
        Ending(
            "a rank started a process that is still running",
            failing("subprocess.Popen(['sleep', '200'], start_new_session=True, cwd='/')"),
            0, "finished", "results in ", "did not exit within 30 s after its ranks",
        ),
        Ending(
            "a scheduler suspends all ranks for longer than `peer_timeout`, and continues them",
            disturbed(ways.suspend_all, epochs=20, **IMPATIENT), 0, "finished", "results in ",
        ),
    ],
    "Stopped on request": [
        Ending("SIGTERM before the command has loaded torch", ways.signalled_early(signal.SIGTERM), 75, "", "stopped by SIGTERM"),
        Ending("Ctrl-C at the same time", ways.signalled_early(signal.SIGINT), 75, "", "stopped by SIGINT"),
        Ending("SIGTERM to the command", disturbed(ways.signal_launcher(signal.SIGTERM)), 75, "preempted", "stopped and saved"),
        Ending("SIGTERM to one rank", disturbed(ways.signal_rank(1, signal.SIGTERM)), 75, "preempted", "stopped and saved"),
        Ending("Ctrl-C", disturbed(ways.signal_all(signal.SIGINT)), 75, "preempted", "stopped and saved"),
        Ending("the terminal closes (SIGHUP)", disturbed(ways.signal_all(signal.SIGHUP)), 75, "preempted", "stopped and saved"),
        Ending("a rank reaches the limit of processor time (SIGXCPU, `ulimit -t`)", disturbed(ways.signal_rank(1, signal.SIGXCPU)), 75, "time limit", "the limit of processor time (ulimit -t) is reached; stopped and saved"),
        Ending("the time limit is near", ways.near_time_limit, 75, "time limit", "stopped and saved"),
    ],
    "Killed": [
        Ending("a rank gets SIGKILL", disturbed(ways.signal_rank(1, signal.SIGKILL)), 1, "killed", "rank 1 (process <pid> on <host>) was killed by SIGKILL"),
        Ending("the only rank gets SIGKILL", disturbed(ways.signal_rank(0, signal.SIGKILL), **ONE_RANK), 1, "killed", "rank 0 (process <pid> on <host>) was killed by SIGKILL"),
        Ending("`mpiexec` gets SIGKILL", disturbed(ways.signal_program("mpiexec", signal.SIGKILL)), 1, "killed", "'mpiexec' (process <pid>) was killed by SIGKILL"),
        Ending("`hydra_pmi_proxy`, the parent of the ranks, gets SIGKILL", disturbed(ways.signal_program("hydra", signal.SIGKILL), epochs=4000), 1, "killed", "the process <pid> that started the ranks on <host> ended before them"),
        Ending("`nnlo run` gets SIGKILL; the next command records it", ways.killed_command, -9, "killed", "(nothing)"),
    ],
    "Silent": [
        Ending("a rank is stopped (SIGSTOP) while others run", disturbed(ways.signal_rank(1, signal.SIGSTOP), **IMPATIENT), 1, "peer lost", "rank 1 (process <pid> on <host>, stopped by a signal) did not respond for <n> s", "warning: rank 0 has waited"),
        Ending("rank 0 is stopped", disturbed(ways.signal_rank(0, signal.SIGSTOP), **IMPATIENT), 1, "peer lost", "rank 0 (process <pid> on <host>, stopped by a signal) did not respond for <n> s", "warning: rank 1 has waited"),
        Ending("a rank hangs, as on a file system or a GPU that does not answer", failing("time.sleep(1000)", **IMPATIENT), 1, "peer lost", "rank 1 (process <pid> on <host>, sleeping) did not respond for <n> s", "warning: rank 0 has waited"),
    ],
    "Code and settings of the user": [
        Ending("an exception", failing("raise ArithmeticError('the fifth step')"), 2, "user code", "net.py:18 in forward: ArithmeticError: the fifth step"),
        Ending("`sys.exit(0)`", failing("sys.exit(0)"), 2, "user code", "SystemExit: 0"),
        Ending("`os._exit(3)`", failing("os._exit(3)"), 1, "crashed", "rank 1 (process <pid> on <host>) exited with status 3"),
        Ending("`os._exit(0)`", failing("os._exit(0)"), 1, "crashed", "rank 1 (process <pid> on <host>) exited with status 0"),
        Ending("`os._exit(3)` in the only rank", failing("os._exit(3)", **ONE_RANK), 1, "crashed", "rank 0 (process <pid> on <host>) exited with status 3"),
        Ending("a segmentation fault", failing("os.kill(os.getpid(), signal.SIGSEGV)"), 1, "crashed", "rank 1 (process <pid> on <host>) crashed with SIGSEGV", "net.py\", line 18 in forward"),
        Ending("`abort()`", failing("os.abort()"), 1, "crashed", "rank 1 (process <pid> on <host>) crashed with SIGABRT"),
        Ending("a segmentation fault in the only rank", failing("os.kill(os.getpid(), signal.SIGSEGV)", **ONE_RANK), 1, "crashed", "rank 0 (process <pid> on <host>) crashed with SIGSEGV"),
        Ending("`MemoryError`", failing("raise MemoryError('4 GB')"), 1, "out of memory", "MemoryError: 4 GB"),
        Ending("the loss is not a number", untouched(train={"optimizer": {"lr": 1e30}}), 2, "diverged", "the loss became nan"),
        Ending("the launcher is not installed", untouched("--launcher", "no-such-mpiexec"), 2, "bad input", "cannot start the ranks with 'no-such-mpiexec'"),
        Ending("the launcher fails", untouched("--launcher", "false"), 1, "killed", "failed twice at step 0, therefore not retried: no rank started: the launcher exited"),
        Ending("a second `nnlo run` in the same folder", ways.second_command, 2, "", "is being written by process <pid>"),
    ],
    "The machine": [
        Ending("the disk is full at the end", ways.on_full_disk, 1, "disk full", "No space left on device; free space and run the same command again"),
        Ending("the disk is read-only", ways.on_read_only_disk, 2, "", "Read-only file system"),
        Ending("`/dev/shm` has 1 MiB", ways.with_small_shared_memory, 2, "bad input", "no rank started: /dev/shm has <n> MiB"),
        Ending("the results are moved away", disturbed(ways.move_results), 1, "", "the folder is missing"),
    ],
}  # fmt: skip
ENDINGS = {ending.title: ending for group in GROUPS.values() for ending in group}


def rows() -> dict[str, str]:
    """Return the rows of the page by title."""
    return {line.split(" | ")[0].removeprefix("| "): line for line in PAGE.read_text().splitlines()}


def page(rows: dict[str, str]) -> str:
    """Return the page with the row of each title."""
    tables = [
        f"## {group}\n\n{HEAD}\n" + "\n".join(rows.get(each.title, "") for each in endings)
        for group, endings in GROUPS.items()
    ]
    return "\n\n".join([INTRODUCTION.strip(), *tables]) + "\n"
