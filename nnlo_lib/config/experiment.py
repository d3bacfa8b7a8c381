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
    search: Search | None = Field(
        None,
        description="Hyper-parameter search over the base above, docs/search.md; null: none.",
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
        return values if size is None or said else merge(values, {"parallel": {"ranks": size}})

    @model_validator(mode="after")
    def _vary_sensibly(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            refuse("a seed is listed twice", "seeds")
        size, ranks = self.search and self.search.blocks.size, self.parallel.ranks
        if size not in (None, ranks):
            refuse(
                f"a block of {size} cannot train on {ranks} ranks (parallel.ranks)",
                "search",
                "blocks",
                "size",
            )
        if self.search and (taken := {"best", "search"} & self.runs.keys()):
            refuse("is the name of a folder of the search; give the run another", "runs", min(taken))
        return self

    @property
    def variants(self) -> dict[str, Run]:
        """Every run by name, the overrides merged into the base."""
        base = self.settings
        named = self.runs or {self.algorithm.name: {}}
        return {name: Run.model_validate(merge(base, changes)) for name, changes in named.items()}

    def jobs(self) -> Iterator[Job]:
        """Yield every training of the experiment."""
        folds = [None] if self.folds == 1 else range(self.folds)
        for run in self.variants:
            for seed in self.seeds:
                for fold in folds:
                    yield Job(run=run, seed=seed, fold=fold)


def _within(values: Any, *path: str) -> Any:
    """Return what lies below nested keys, if there is something."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values
