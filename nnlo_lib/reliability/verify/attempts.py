"""Note on the attempts of a job: number, end reasons, lost steps."""

from collections.abc import Iterator

from nnlo_lib.reliability.verify.finding import Finding, note
from nnlo_lib.state.attempt_statistics import AttemptStatistics
from nnlo_lib.state.finished_run import FinishedRun


def check_attempts(run: FinishedRun) -> Iterator[Finding]:
    """Report the attempts, the repeated steps and the effective training time ratio."""
    statistics = run.attempt_statistics
    text = _describe_attempts(statistics) if statistics else "state/attempts.jsonl records none"
    yield note(f"attempts: {text}")


def _describe_attempts(statistics: AttemptStatistics) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in statistics.count_by_reason.items())
    text = f"{len(statistics.attempts)} ({reasons}); repeated steps: {statistics.lost_steps:,}"
    if statistics.effective_time_ratio is None:
        return text
    ratio, total_s = statistics.effective_time_ratio, statistics.total_seconds
    return (
        f"{text}; effective training time ratio {100 * ratio:.1f} % of {total_s:,.1f} s; the rest was spent on "
        "start-up, checkpoints and repeated steps"
    )
