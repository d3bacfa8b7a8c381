"""A whole experiment file."""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import NAME_PATTERN, merge_settings, raise_config_error
from nnlo_lib.config.run import JobSpec, Run
from nnlo_lib.config.search import SearchConfig


class Experiment(Run):
    """A whole experiment file: a base run, and what is varied."""

    name: str = Field(
        "experiment",
        pattern=NAME_PATTERN,
        description="Folder of the results, below results/: letters, digits, _, . and -.",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training per seed: initial weights, data split, order, dropout."
    )
    folds: int = Field(
        1, ge=1, description="k of k-fold cross-validation; 1: one split by `data.validation`."
    )
    runs: dict[Annotated[str, Field(pattern=NAME_PATTERN)], dict[str, Any]] = Field(
        {}, description="Named variants: each overrides keys of the base above. Empty: the base itself."
    )
    search: SearchConfig | None = Field(
        None,
        description="Hyper-parameter search over the base above, docs/guides/search.md; null: none.",
        examples=[
            {"space": {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}}, "trials": 20, "parallel": 4}
        ],
    )

    @model_validator(mode="before")
    @classmethod
    def _ranks_of_blocks(cls, values: Any) -> Any:
        """Train with as many ranks as a block has, where nothing else is said."""
        size = _within(values, "search", "blocks", "size")
        said = _within(values, "parallel", "ranks") is not None
        return values if size is None or said else merge_settings(values, {"parallel": {"ranks": size}})

    @model_validator(mode="after")
    def _vary_sensibly(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise_config_error("a seed is listed twice", "seeds")
        size, ranks = self.search and self.search.blocks.size, self.parallel.ranks
        if size not in (None, ranks):
            raise_config_error(
                f"a block of {size} cannot train on {ranks} ranks (parallel.ranks)",
                "search",
                "blocks",
                "size",
            )
        if self.search and (taken := {"best", "search"} & self.runs.keys()):
            raise_config_error(
                "is the name of a folder of the search; give the run another", "runs", min(taken)
            )
        return self

    @property
    def variants(self) -> dict[str, Run]:
        """Every run by name, the overrides merged into the base."""
        return self._variants

    @cached_property
    def _variants(self) -> dict[str, Run]:  # the underscore keeps it out of dict(experiment)
        base = self.settings
        named = self.runs or {self.algorithm.label: {}}
        return {name: Run.model_validate(merge_settings(base, changes)) for name, changes in named.items()}

    def __copy__(self) -> Self:
        """Return a shallow copy that merges its own variants: model_copy changes what they are made of."""
        copy = super().__copy__()
        copy.__dict__.pop("_variants", None)
        return copy

    def jobs(self) -> Iterator[JobSpec]:
        """Yield every training of the experiment."""
        folds = [None] if self.folds == 1 else range(self.folds)
        for run in self.variants:
            for seed in self.seeds:
                for fold in folds:
                    yield JobSpec(run=run, seed=seed, fold=fold)


def _within(values: Any, *path: str) -> Any:
    """Return what lies below nested keys, if there is something."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values
