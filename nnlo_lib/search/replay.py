"""Whether the files of a search say what its mind would say: every decision over again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnlo_lib.config.search import Search
from nnlo_lib.errors import UserError
from nnlo_lib.search.fidelity.build import policy
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.study import Proposer, begins, goes_on
from nnlo_lib.search.trial import Decision, Leaf, Point, Trial, in_order, read_result, read_trials


def replay(folder: Path, search: Search, epochs: int, propose: Proposer) -> list[str]:
    """Recompute each decision from what it says it knew; return a sentence for each that comes out differently.

    Limits are not asked, as they may have been raised since. Raises UserError if a file is damaged or missing.
    """
    recorded, mind = read_trials(folder), policy(search.fidelity)
    found = []
    for decision, known in _history(folder, search, epochs, recorded):
        leaf, point = decision.leaf, recorded[decision.leaf.trial].point
        again = goes_on(known, mind)
        chosen = (again, recorded[again.trial].point) if again else begins(known, mind, propose)
        if chosen != (leaf, point):
            found.append(
                f"decision {decision.number} is {_shown(leaf, point)}, but {_shown(*chosen or ())} follows"
            )
    return found


def _history(
    folder: Path, search: Search, epochs: int, recorded: list[Trial]
) -> Iterator[tuple[Decision, Knowledge]]:
    """Yield each decision with what was known then."""
    decisions = in_order(recorded)
    found = [read_result(folder, decision.leaf) for decision in decisions]
    trials: list[Trial] = []
    memo: dict[Any, float] = {}
    for decision in decisions:
        results = {}
        for earlier, result in zip(decisions[: decision.number], found, strict=False):
            if earlier.number in decision.pending:
                continue
            if result is None:
                raise UserError(
                    f"{earlier.leaf.path(folder)} is missing, but decision {decision.number} knew it"
                )
            results[earlier.leaf] = result
        yield decision, Knowledge(search, epochs, trials, results, memo)
        number = decision.leaf.trial
        before = trials[number] if number < len(trials) else Trial(number, recorded[number].point)
        trials[number : number + 1] = [replace(before, decisions=(*before.decisions, decision))]


def _shown(leaf: Leaf | None = None, point: Point | None = None) -> str:
    if leaf is None:
        return "nothing"
    return f"fold {leaf.fold} of trial {leaf.trial} ({point}) until epoch {leaf.epochs}"
