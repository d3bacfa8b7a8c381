"""Note on the attempts of a job: number, end reasons, lost steps."""

from collections.abc import Iterator

from nnlo_lib.reliability.verify.finding import Finding, note
from nnlo_lib.state.attempt_statistics import AttemptStatistics
from nnlo_lib.state.finished_run import FinishedRun


def check_attempts(run: FinishedRun) -> Iterator[Finding]:
    """Report the attempts, the repeated steps and the effective training time ratio."""
    tally = run.attempt_statistics
    yield note(
        f"attempts: {_describe_attempts(tally)}" if tally else "attempts: state/attempts.jsonl tells of none"
    )


def _describe_attempts(tally: AttemptStatistics) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.count_by_reason.items())
    told = f"{len(tally.attempts)} ({reasons}); steps done again: {tally.lost_steps:,}"
    if tally.effective_time_ratio is None:
        return told
    return (
        f"{told}; effective training time ratio {100 * tally.effective_time_ratio:.1f} % of {tally.total_seconds:,.1f} s, the rest "
        "went into starting and what was lost"
    )
