"""The mind of a search: what is to be trained next, as a pure function of what is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from nnlo_lib.config.search import Search
from nnlo_lib.search.fidelity import policy
from nnlo_lib.search.folds import next_fold
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.limits import exhausted
from nnlo_lib.search.trial import Decision, Leaf, Point, Result, Trial, read_result, read_trials, write_trial


class Proposer(Protocol):
    """Propose a point for trial `number` that was not proposed before; None if there is none left."""

    def __call__(self, number: int, known: Knowledge) -> Point | None: ...


class Study:
    """A search in its folder. parallel: leaves at a time. Only one process may have it, by the folder's lease."""

    def __init__(self, folder: Path, search: Search, epochs: int, propose: Proposer, parallel: int) -> None:
        self._folder, self._search, self._epochs = folder, search, epochs
        self._propose, self._parallel = propose, parallel
        self._policy = policy(search.fidelity)
        self.trials = read_trials(folder)
        self.results: dict[Leaf, Result] = {}
        self.refresh()

    @property
    def decisions(self) -> list[Decision]:
        """All decisions, in their order."""
        return sorted((d for trial in self.trials for d in trial.decisions), key=lambda d: d.number)

    @property
    def unfinished(self) -> list[Decision]:
        """Decisions without a result."""
        return [decision for decision in self.decisions if decision.leaf not in self.results]

    def refresh(self) -> None:
        """Read the results that have come."""
        for decision in self.unfinished:
            if result := read_result(self._folder, decision.leaf):
                self.results[decision.leaf] = result

    def decide(self) -> Decision | None:
        """Decide on one more leaf and write it down; None if there is none, or none before more is known."""
        decide = self._decide_fixed if self._search.order == "fixed" else self._decide_now
        return decide()

    def _decide_now(self) -> Decision | None:
        unfinished = self.unfinished
        return self._next(unfinished) if len(unfinished) < self._parallel else None

    def _decide_fixed(self) -> Decision | None:
        """Look at nothing that might not be known yet: count how many of the last decisions are pending from the top.

        Fewer, if there is nothing to decide otherwise.
        """
        decisions, unfinished = self.decisions, self.unfinished
        for width in range(min(self._parallel - 1, len(decisions)), -1, -1):
            pending = decisions[len(decisions) - width :]
            if any(decision not in pending for decision in unfinished):
                return None
            if decision := self._next(pending):
                return decision
        return None

    def _next(self, pending: Sequence[Decision]) -> Decision | None:
        hidden = {decision.leaf for decision in pending}
        results = {leaf: result for leaf, result in self.results.items() if leaf not in hidden}
        known = Knowledge(self._search, self._epochs, self.trials, results)
        leaf = self._goes_on(known) or self._goes_up(known) or self._begins(known)
        return self._write(leaf, pending) if leaf else None

    def _goes_on(self, known: Knowledge) -> Leaf | None:
        """Return the next fold of a trial."""
        return next(filter(None, (next_fold(known, trial.number) for trial in known.trials)), None)

    def _goes_up(self, known: Knowledge) -> Leaf | None:
        """Return the first fold of a trial's next rung."""
        promoted = self._policy.promote(known)
        return Leaf(promoted[0], 0, promoted[1]) if promoted else None

    def _begins(self, known: Knowledge) -> Leaf | None:
        """Return the first leaf of a new trial."""
        number = len(self.trials)
        point = None if exhausted(known) else self._propose(number, known)
        if point is None:
            return None
        self.trials.append(Trial(number, point))
        return Leaf(number, 0, self._policy.rungs(number, self._epochs)[0])

    def _write(self, leaf: Leaf, pending: Sequence[Decision]) -> Decision:
        decision = Decision(len(self.decisions), leaf, tuple(each.number for each in pending))
        trial = self.trials[leaf.trial]
        self.trials[leaf.trial] = trial = replace(trial, decisions=(*trial.decisions, decision))
        write_trial(self._folder, trial)
        return decision
