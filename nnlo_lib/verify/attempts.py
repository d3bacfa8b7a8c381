"""What it took to finish: how often a run was begun, why it ended, and how much was lost."""

from collections.abc import Iterator

from nnlo_lib.state.tally import Tally
from nnlo_lib.verify.finding import Finding, note
from nnlo_lib.verify.finished import Finished


def attempts(run: Finished) -> Iterator[Finding]:
    """Tell the attempts, the steps lost and the effective training time ratio."""
    tally = run.tally
    yield note(f"attempts: {_told(tally)}" if tally else "attempts: state/attempts.jsonl tells of none")


def _told(tally: Tally) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.reasons.items())
    told = f"{len(tally.attempts)} ({reasons}); steps done again: {tally.lost_steps:,}"
    if tally.effective is None:
        return told
    return (
        f"{told}; effective training time ratio {100 * tally.effective:.1f} % of {tally.seconds:,.1f} s, the rest "
        "went into starting and what was lost"
    )
