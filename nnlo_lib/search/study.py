"""The mind of a search: what is to be trained next, as a pure function of what is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from nnlo_lib.config.search import Search
from nnlo_lib.search.fidelity.build import policy
from nnlo_lib.search.fidelity.policy import Policy
from nnlo_lib.search.folds import next_fold
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.limits import exhausted, over
from nnlo_lib.search.trial import (
    Decision,
    Leaf,
    Point,
    Result,
    Trial,
    in_order,
    read_result,
    read_trials,
    write_trial,
)


class Proposer(Protocol):
    """Propose a point for trial `number` that was not proposed before; None if there is none left."""

    def __call__(self, number: int, known: Knowledge) -> Point | None: ...


def goes_on(known: Knowledge, policy: Policy) -> Leaf | None:
    """Return what comes next of the trials there are: the next fold of one, or the first of its next rung."""
    for trial in known.trials:
        if leaf := next_fold(known, trial.number):
            return leaf
    promoted = policy.promote(known)
    return Leaf(promoted[0], 0, promoted[1]) if promoted else None


def begins(known: Knowledge, policy: Policy, propose: Proposer) -> tuple[Leaf, Point] | None:
    """Return the first leaf of a new trial, and its point."""
    number = len(known.trials)
    point = propose(number, known)
    return None if point is None else (Leaf(number, 0, policy.rungs(number, known.epochs)[0]), point)


class Study:
    """A search in its folder. parallel: leaves at a time. Only one process may have it, by the folder's lease."""

    def __init__(self, folder: Path, search: Search, epochs: int, propose: Proposer, parallel: int) -> None:
        self._folder, self._search, self._epochs = folder, search, epochs
        self._propose, self.parallel = propose, parallel
        self._policy = policy(search.fidelity)
        self._memo: dict[Any, float] = {}
        self.trials = read_trials(folder)
        self.decisions = in_order(self.trials)
        self.unfinished = list(self.decisions)  # decisions without a result
        self.results: dict[Leaf, Result] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the results that have come."""
        for decision in self.unfinished:
            if result := read_result(self._folder, decision.leaf):
                self.results[decision.leaf] = result
        self.unfinished = [each for each in self.unfinished if each.leaf not in self.results]

    def known(self, pending: Sequence[Decision] = ()) -> Knowledge:
        """Return what is known without the results of some decisions."""
        results = dict(self.results)
        for decision in pending:
            results.pop(decision.leaf, None)
        return Knowledge(self._search, self._epochs, self.trials, results, self._memo)

    def decide(self) -> Decision | None:
        """Decide on one more leaf and write it down; None if there is none, or none before more is known."""
        return self._decide_fixed() if self._search.order == "fixed" else self._decide_now()

    def _decide_now(self) -> Decision | None:
        return self._next(self.unfinished) if len(self.unfinished) < self.parallel else None

    def _decide_fixed(self) -> Decision | None:
        """Look at nothing that might not be known yet: count how many of the last decisions are pending from the top.

        Fewer, if there is nothing to decide otherwise.
        """
        count = len(self.decisions)
        for width in range(min(self.parallel - 1, count), -1, -1):
            if self.unfinished and self.unfinished[0].number < count - width:
                return None
            if decision := self._next(self.decisions[count - width :]):
                return decision
        return None

    def _next(self, pending: Sequence[Decision]) -> Decision | None:
        known = self.known(pending)
        if over(known):
            return None
        if leaf := goes_on(known, self._policy):
            return self._write(self.trials[leaf.trial], leaf, pending)
        new = None if exhausted(known) else begins(known, self._policy, self._propose)
        return self._write(Trial(new[0].trial, new[1]), new[0], pending) if new else None

    def _write(self, trial: Trial, leaf: Leaf, pending: Sequence[Decision]) -> Decision:
        decision = Decision(len(self.decisions), leaf, tuple(each.number for each in pending))
        trial = replace(trial, decisions=(*trial.decisions, decision))
        write_trial(self._folder, trial)
        self.trials[trial.number : trial.number + 1] = [trial]
        self.decisions.append(decision)
        self.unfinished.append(decision)
        return decision
