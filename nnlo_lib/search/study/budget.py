"""Conditions that end a search: number of trials, target of the objective, budget."""

from collections.abc import Iterable
from itertools import chain

from nnlo_lib.search.study.snapshot import StudySnapshot

SECONDS_PER_HOUR = 3600.0


def reason_no_new_trial(known: StudySnapshot) -> str | None:
    """Return the reason why no new trial is started, or None; known trials may continue."""
    limit = known.search.trial_limit
    if limit is not None and len(known.trials) >= limit:
        return f"{len(known.trials)} trials"
    return reason_to_end(known)


def reason_to_end(known: StudySnapshot) -> str | None:
    """Return the reason why no trial, fold or rung is started, or None; running fold tasks finish."""
    return reason_target_reached(known) or reason_budget_used(known)


def reason_target_reached(known: StudySnapshot) -> str | None:
    """Return a message if the best trial, with all its folds, has reached the target, or else None."""
    objective = known.search.objective
    if objective.target is None or (winner := known.winner) is None:
        return None
    value = known.mean_value(*winner)
    assert value is not None, "a winner has all folds"
    if value > objective.sign * objective.target:
        return None
    return f"trial {winner[0]} has reached {objective.metric} {objective.sign * value:g}"


def reason_budget_used(known: StudySnapshot) -> str | None:
    """Return a message with the budget that the known results have used up, or None."""
    for name, limit in known.search.budget:
        if limit is not None and (used := _USES[name](known)) >= limit:
            return f"{used:.3g} {name.replace('_', '-')} used"
    return None


def core_hours(known: StudySnapshot) -> float:
    """Return cores times hours of all ended fold tasks."""
    return sum(result.cores * result.seconds for result in known.results.values()) / SECONDS_PER_HOUR


def gpu_hours(known: StudySnapshot) -> float:
    """Return GPUs times hours of all ended fold tasks."""
    return sum(result.gpus * result.seconds for result in known.results.values()) / SECONDS_PER_HOUR


def hours(known: StudySnapshot) -> float:
    """Return the hours in which at least one ended fold task ran, its interrupted attempts included.

    Pauses of the whole search do not count.
    """
    return (
        union_length(chain.from_iterable(result.spans for result in known.results.values()))
        / SECONDS_PER_HOUR
    )


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of (start, end) intervals."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


_USES = {"hours": hours, "core_hours": core_hours, "gpu_hours": gpu_hours}
