"""A whole experiment file."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from nnlo_lib.config.run import Job, Run
from nnlo_lib.config.search import Search
from nnlo_lib.config.strict import NAME, merge, refuse


class Experiment(Run):
    """A whole experiment file: a base run, and what is varied."""

    name: str = Field(
        "experiment",
        pattern=NAME,
        description="Folder of the results, below results/: letters, digits, _, . and -.",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training per seed: initial weights, data split, order, dropout."
    )
    folds: int = Field(
        1, ge=1, description="k of k-fold cross-validation; 1: one split by `data.validation`."
    )
    runs: dict[Annotated[str, Field(pattern=NAME)], dict[str, Any]] = Field(
        {}, description="Named variants: each overrides keys of the base above. Empty: the base itself."
    )
    search: Search | None = Field(None, description="Hyper-parameter search over the base above; null: none.")

    @model_validator(mode="after")
    def _vary_sensibly(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            refuse("a seed is listed twice", "seeds")
        return self

    @property
    def variants(self) -> dict[str, Run]:
        """Every run by name, the overrides merged into the base."""
        base = self.model_dump(include=set(Run.model_fields))
        named = self.runs or {self.algorithm.name: {}}
        return {name: Run.model_validate(merge(base, changes)) for name, changes in named.items()}

    def jobs(self) -> Iterator[Job]:
        """Yield every training of the experiment."""
        folds = [None] if self.folds == 1 else range(self.folds)
        for run in self.variants:
            for seed in self.seeds:
                for fold in folds:
                    yield Job(run=run, seed=seed, fold=fold)
