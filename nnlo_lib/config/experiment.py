"""Settings of an experiment file, and the resources that one of its trainings needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from nnlo_lib.config.base import NAME_PATTERN, EditEffect, merge_settings, raise_config_error, value_at
from nnlo_lib.config.run import JobSpec, Run
from nnlo_lib.config.search import SearchConfig

MAX_COUNTED_SEEDS = 20  # a larger number, such as 42, is more often meant as one seed


def _seeds(value: Any) -> Any:
    """Return the seeds 0, 1, ... for their number, which keeps trainings of the default seed 0."""
    if isinstance(value, str):
        raise_config_error(
            f"'{value}' is neither a number of seeds, such as 5, nor a list of seeds, such as [0, 1, 2]"
        )
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if not 1 <= value <= MAX_COUNTED_SEEDS:
        raise_config_error(
            f"{value} may be one seed or a number of seeds; write [{value}] for one seed, [0, 1, ...] for several"
        )
    return tuple(range(value))


SEED_LIST = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    BeforeValidator(_seeds),
    WithJsonSchema({"anyOf": [SEED_LIST, {"type": "integer", "minimum": 1, "maximum": MAX_COUNTED_SEEDS}]}),
]
RunName = Annotated[str, Field(pattern=NAME_PATTERN)]


class Experiment(Run):
    """An experiment file: the settings of a base run, and variants, seeds, folds or a search."""

    name: Annotated[str, EditEffect.JOBS] = Field("experiment", pattern=NAME_PATTERN)
    """Name of the experiment and of its folder in results/: letters, digits, _, . and -."""
    seeds: Annotated[Seeds, EditEffect.JOBS] = Field((0,), min_length=1)
    """One training per seed; the seed determines initial weights, data split, order of samples and dropout. A list, or
    the number of seeds: 3 is [0, 1, 2]."""
    folds: Annotated[int, EditEffect.JOBS] = Field(1, ge=1)
    """Number of folds of cross-validation, each with its own initial weights; 1: one split by `data.validation`."""
    runs: Annotated[dict[RunName, dict[str, Any]], EditEffect.JOBS] = Field({})
    """Runs by name, each with the keys that it overrides. Empty: one run with the settings of the file."""
    search: Annotated[SearchConfig | None, EditEffect.FROZEN] = Field(
        None,
        examples=[
            {"space": {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}}, "trials": 20, "parallel": 4}
        ],
    )
    """Hyperparameter search over the settings of the file (docs/guides/search.md); null: no search."""

    @model_validator(mode="before")
    @classmethod
    def _default_ranks(cls, values: Any) -> Any:
        """Set `parallel.ranks`, if it is not given, to the size of the search's rank groups."""
        # Nothing is validated yet: `values` can have any type at any level.
        size = value_at(values, "search", "blocks", "size")
        has_ranks = value_at(values, "parallel", "ranks") is not None
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


@dataclass(frozen=True)
class RunResources:
    """Processes, cores, GPUs, memory and time of one training, computed from its configuration."""

    run: Run

    @property
    def processes(self) -> int:
        """Number of processes; all simulated ranks share one process."""
        return self.run.parallel.ranks if self.run.parallel.transport == "mpi" else 1

    @property
    def threads_per_process(self) -> int:
        """Number of threads, and cores, of each process."""
        return self.run.parallel.threads_per_rank

    @property
    def cores(self) -> int:
        """Number of cores of all processes together."""
        return self.processes * self.threads_per_process

    @property
    def nodes(self) -> int:
        """Number of nodes for the processes."""
        return min(self.run.resources.nodes, self.processes)

    @property
    def runtime_min(self) -> int:
        """Time limit in minutes."""
        return self.run.resources.runtime

    @property
    def memory_mb(self) -> int:
        """Memory in MB of all processes together in the first attempt."""
        return self.run.resources.mem_mb

    @property
    def gpus(self) -> int:
        """Number of GPUs: one per `ranks_per_gpu` ranks that use a GPU."""
        parallel = self.run.parallel
        # The single process of a simulation uses at most one GPU.
        if not parallel.gpus_per_rank or parallel.transport == "simulated":
            return parallel.gpus_per_rank
        servers = 0 if parallel.master_gpu else self.run.algorithm.servers
        return -(-(parallel.ranks - servers) // parallel.ranks_per_gpu)

    @property
    def tasks_per_gpu(self) -> int:
        """Ranks that Slurm binds to each GPU; 0 if the ranks are not divided evenly and choose a GPU themselves.

        Snakemake's Slurm plugin needs a number, even 0: otherwise it starts all ranks once for each GPU.
        """
        each = self.run.parallel.ranks_per_gpu
        return each if each * self.gpus == self.processes else 0

    @property
    def trainings_per_gpu(self) -> int:
        """Number of trainings with these settings that can share a GPU."""
        return max(1, self.run.parallel.ranks_per_gpu // self.processes) if self.gpus == 1 else 1

    @property
    def site(self) -> dict[str, int | str]:
        """Site-dependent resources by their Snakemake names; an empty string or 0 leaves the value to the profile."""
        partition, account = self.run.resources.partition or "", self.run.resources.account or ""
        return {
            "slurm_partition": partition, "slurm_account": account, "lsf_queue": partition, "lsf_project": account,
            "gpu": self.gpus, "tasks_per_gpu": self.tasks_per_gpu,
        }  # fmt: skip
