"""Settings of an experiment file."""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import NAME_PATTERN, merge_settings, raise_config_error
from nnlo_lib.config.edit_effects import EditEffect
from nnlo_lib.config.run import JobSpec, Run
from nnlo_lib.config.search import SearchConfig

RunName = Annotated[str, Field(pattern=NAME_PATTERN)]


class Experiment(Run):
    """An experiment file: the settings of a base run, and variants, seeds, folds or a search."""

    name: Annotated[str, EditEffect.JOBS] = Field(
        "experiment",
        pattern=NAME_PATTERN,
        description="Name of the experiment and of its folder in results/: letters, digits, _, . and -.",
    )
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], EditEffect.JOBS] = Field(
        (0,),
        min_length=1,
        description="One training per seed; the seed determines initial weights, data split, order of samples and "
        "dropout.",
    )
    folds: Annotated[int, EditEffect.JOBS] = Field(
        1, ge=1, description="Number of folds of cross-validation; 1: one split by `data.validation`."
    )
    runs: Annotated[dict[RunName, dict[str, Any]], EditEffect.JOBS] = Field(
        {},
        description="Runs by name, each with the keys that it overrides. Empty: one run with the settings of the file.",
    )
    search: Annotated[SearchConfig | None, EditEffect.FROZEN] = Field(
        None,
        description="Hyperparameter search over the settings of the file (docs/guides/search.md); null: no search.",
        examples=[
            {"space": {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}}, "trials": 20, "parallel": 4}
        ],
    )

    @model_validator(mode="before")
    @classmethod
    def _default_ranks(cls, values: Any) -> Any:
        """Set `parallel.ranks`, if it is not given, to the size of the search's rank groups."""
        # Nothing is validated yet: `values` can have any type at any level.
        size = _within(values, "search", "blocks", "size")
        has_ranks = _within(values, "parallel", "ranks") is not None
        return values if size is None or has_ranks else merge_settings(values, {"parallel": {"ranks": size}})

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise_config_error("a seed is listed twice; remove the duplicate", "seeds")
        # Again after `_default_ranks`, because both keys can be written.
        size, ranks = self.search and self.search.blocks.size, self.parallel.ranks
        if size not in (None, ranks):
            raise_config_error(
                f"a rank group of {size} cannot train with `parallel.ranks: {ranks}`; "
                "use the same number, or remove one of the keys",
                "search",
                "blocks",
                "size",
            )
        return self

    @property
    def variants(self) -> dict[str, Run]:
        """All runs by name, with their overrides merged into the base."""
        return self._variants

    # The underscore keeps the cached value out of dict(experiment).
    @cached_property
    def _variants(self) -> dict[str, Run]:
        base = self.settings
        named = self.runs or {self.algorithm.label: {}}
        return {name: Run.model_validate(merge_settings(base, changes)) for name, changes in named.items()}

    def __copy__(self) -> Self:
        """Return a shallow copy without the cached variants, because model_copy changes their settings."""
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
    """Return the value at nested keys, or None if there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values
