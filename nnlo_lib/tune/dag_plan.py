"""What the rules of a search ask: whether it has ended, and what its trainings are and need."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment, Run
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import BEST
from nnlo_lib.search.settings import NAME as SETTINGS
from nnlo_lib.search.settings import agree
from nnlo_lib.search.trial import Leaf, in_order, read_result, read_trial, read_trials
from nnlo_lib.tune.config_file import folder_of
from nnlo_lib.tune.dag_needs import Needs, Wildcards
from nnlo_lib.tune.trial_run import shown, trial_run

ENDED = "ended.json"  # a copy of config.json


@dataclass(frozen=True)
class SearchPlan:
    """The answers that the rules of a search take their parameters and resources from."""

    experiment: Experiment
    has_ended: bool

    @classmethod
    def of(cls, experiment: Experiment, leads: bool) -> "SearchPlan":
        """Plan a search; leads: in the process that decides, not in that of a job.

        Raises UserError if a file of it is damaged, or if it was begun with other settings.
        """
        folder = folder_of(experiment)
        if (folder / SETTINGS).exists():
            agree(folder, experiment)
        return cls(experiment, leads and _has_ended(experiment, folder))

    @property
    def folder(self) -> Path:
        """Folder of the search."""
        return folder_of(self.experiment)

    @property
    def best(self) -> Path:
        """Folder of the run that the search ends with."""
        return self.folder.with_name(BEST)

    @property
    def asked(self) -> str:
        """What decides when it ends, and may be changed."""
        assert self.experiment.search is not None
        return self.experiment.search.model_dump_json(include={"trials", "parallel", "budget", "objective"})

    @property
    def leaf(self) -> Needs:
        """What a leaf needs."""
        return Needs(self.experiment, self._leaf_run, self._leaf_state)

    @property
    def retrained(self) -> Needs:
        """What the best needs, once it is known."""
        return Needs(self.experiment, self._best_run, self._best_state)

    @property
    def model_files(self) -> list[str]:
        """Files that layers and initial weights of some trial are read from."""
        models = (
            self.experiment.model.model_copy(update={"name": name, "weights": weights})
            for name in self._values("name")
            for weights in self._values("weights")
        )
        return sorted({file for model in models for file in model.contents})

    def _values(self, key: str) -> tuple[Any, ...]:
        """Return what a key of the model may be."""
        assert self.experiment.search is not None
        searched = self.experiment.search.space.get(f"model.{key}")
        base = getattr(self.experiment.model, key)
        return (base, *(searched.choice or (searched.constant,))) if searched else (base,)

    def point(self, trial: str) -> str:
        """Return what is tried, for a person."""
        return shown(read_trial(self.folder, int(trial)).point)

    def resolved_best(self) -> str:
        """Return the best's complete configuration as JSON. Raises UserError if no trial came to anything."""
        from nnlo_lib.tune.best import best_run

        run = best_run(self.folder).model_dump(mode="json")
        settings = {"experiment": self.experiment.name, "name": BEST, "folds": 1, "run": run}
        return json.dumps(settings, indent=1)

    def _leaf_run(self, wildcards: Wildcards) -> Run:
        return self._trial_run(int(wildcards.trial))

    @cached_property
    def _trial_run(self) -> Callable[[int], Run]:
        return cache(partial(_run, self))

    def _leaf_state(self, wildcards: Wildcards) -> Path:
        return Leaf(int(wildcards.trial), int(wildcards.fold), 0).folder(self.folder) / "state"

    def _best_run(self, _: Wildcards) -> Run:
        path = f"{self.best}/config.json"  # no Path: Snakemake compares the name in the error with its own
        with open(path) as file:
            return Run.model_validate(json.load(file)["run"])

    def _best_state(self, wildcards: Wildcards) -> Path:
        return self.best / f"seed-{wildcards.seed}/state"


def _run(plan: SearchPlan, trial: int) -> Run:
    """Return the training of a trial; the base where the point makes none, which the leaf then says."""
    try:
        return trial_run(plan.experiment, read_trial(plan.folder, trial).point)
    except UserError:
        return plan.experiment


def _has_ended(experiment: Experiment, folder: Path) -> bool:
    """Tell whether this very search has come to its end before."""
    try:
        ended = Experiment.model_validate(json.loads((folder / ENDED).read_text()))
    except (OSError, ValueError):
        return False
    decisions = in_order(read_trials(folder))
    done = bool(decisions) and all(read_result(folder, decision.leaf) for decision in decisions)
    return done and ended.search == experiment.search
