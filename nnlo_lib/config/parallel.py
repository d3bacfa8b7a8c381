"""Settings of the processes of a training: number, transport, simulation, and resources of the scheduler."""

import shlex
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, field_validator, model_validator

from nnlo_lib.config.base import ConfigModel, EditEffect, Megabytes, Minutes, raise_config_error

Rank = Annotated[int, Field(ge=0)]
Speed = Annotated[float, Field(gt=0)]
AUTO = "auto"


def _refuse_auto(value: Any) -> Any:
    # experiment.automatic_gpus has replaced the value of a file; it cannot do so in a search space or a script.
    if value == AUTO:
        raise_config_error("auto is possible in an experiment file only, outside of `search`; write 0 or 1")
    return value


GpusPerRank = Annotated[
    int,
    Field(ge=0, le=1),
    BeforeValidator(_refuse_auto),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1}, {"const": AUTO}]}),
]


class StragglersConfig(ConfigModel):
    """Ranks that compute some of their steps more slowly."""

    fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of the ranks that are stragglers, drawn from the seed."""
    ranks: tuple[Rank, ...] = ()
    """Ranks that are stragglers in addition to the drawn ranks."""
    slowdown: float = Field(2.0, ge=1)
    """Factor by which a slow step takes longer."""
    probability: float = Field(1.0, ge=0, le=1)
    """Probability that a step of a straggler is slow."""


class RankFailureConfig(ConfigModel):
    """A failure of a rank: it stops for some time and then continues where it stopped."""

    rank: Rank
    """The rank that fails."""
    at: float = Field(ge=0)
    """Time of the failure in virtual seconds since the start."""
    seconds: float = Field(gt=0)
    """Duration of the failure in virtual seconds."""


class SimulationConfig(ConfigModel):
    """The virtual machine of `transport: simulated`."""

    compute: Literal["exact", "batched"] = "exact"
    """exact: compute gradients rank by rank, bit-identical to `transport: mpi`; batched: compute the gradients of all
    ranks in a few large calls, which is faster with many small replicas and equal up to rounding."""
    sample_seconds: Speed | Literal["measured"] = 1e-4
    """Seconds to compute one sample on a rank of speed 1; measured: the real computing time of this process, for
    calibration (such a run is not reproducible)."""
    latency: float = Field(1e-5, ge=0)
    """Seconds until the first byte of a message arrives; a collective call takes one or two rounds of messages."""
    bandwidth: float = Field(1.25e9, gt=0)
    """Bytes per second of each rank's network card, shared by all messages that it sends (1.25e9: 10 Gb/s)."""
    speeds: dict[Rank, Speed] | tuple[Speed, ...] = Field({})
    """Relative speed of the ranks: a mapping by rank, or a list in rank order; 1 if not given."""
    stragglers: StragglersConfig = StragglersConfig()
    jitter: float = Field(0.0, ge=0)
    """Sigma of a log-normal factor with mean 1 on the time of each step."""
    failures: tuple[RankFailureConfig, ...] = ()
    """Failures of ranks at given times."""
    mtbf: float | None = Field(None, gt=0)
    """Mean seconds between random failures of each rank, exponentially distributed; null: no random failures."""
    repair: float = Field(10.0, gt=0)
    """Mean duration of a random failure in seconds, exponentially distributed."""
    loss: float = Field(0.0, ge=0, lt=1)
    """Probability that a message between two ranks is lost and sent again; each round of a collective call waits for
    the last of its messages."""
    retransmit: float = Field(0.2, gt=0)
    """Seconds after which a lost message is sent again."""
    elastic: dict[Annotated[int, Field(ge=2)], PositiveInt] = Field({}, examples=[{4: 12, 8: 16}])
    """Number of ranks from an epoch on (4: after three epochs), in place of `ranks`: those with the highest numbers leave
    or return, as if the training had stopped and resumed with this number; their clocks continue. For algorithms whose
    runs can resume with another number of ranks."""

    @model_validator(mode="after")
    def _measured_alone(self) -> Self:
        if self.sample_seconds == "measured" and self.compute == "batched":
            raise_config_error(
                "measured is not supported with `compute: batched`, which computes several ranks in one call; "
                "set `parallel.simulation.compute: exact`",
                "sample_seconds",
            )
        return self

    def speed_of_ranks(self, size: int) -> list[float]:
        """Return the relative speed of each of `size` ranks."""
        known = self.speeds if isinstance(self.speeds, dict) else dict(enumerate(self.speeds))
        return [known.get(rank, 1.0) for rank in range(size)]

    @property
    def named_ranks(self) -> dict[str, set[int]]:
        """Ranks that the settings name, by key."""
        failing, straggling = {each.rank for each in self.failures}, set(self.stragglers.ranks)
        speeds = self.speeds if isinstance(self.speeds, dict) else range(len(self.speeds))
        return {"failures": failing, "stragglers": straggling, "speeds": set(speeds)}


class ParallelConfig(ConfigModel):
    """Number of processes that train one model, and their communication."""

    ranks: Annotated[int, EditEffect.RESUME] = Field(2, ge=1)
    """Number of MPI processes of one training, including servers."""
    processes_per_worker: int = Field(1, ge=1)
    """Ranks per worker; the ranks of a worker average their gradients."""
    threads_per_rank: int = Field(1, ge=1)
    """Threads of each rank; at most cores / ranks is sensible."""
    gpus_per_rank: GpusPerRank = 0
    """GPUs per rank: 1, or 0 to compute on CPUs; auto: 1 if this host shows GPUs, else 0, and `ranks_per_gpu` is raised
    until they suffice for the ranks. auto is replaced when the file is read, and refused on a cluster."""
    ranks_per_gpu: Annotated[int, EditEffect.NEXT_ATTEMPT] = Field(1, ge=1)
    """Ranks that share a GPU; used if `gpus_per_rank` is 1."""
    master_gpu: Annotated[bool, EditEffect.NEXT_ATTEMPT] = True
    """Servers also use a GPU if `gpus_per_rank` is 1."""
    bind: Annotated[Literal["launcher", "none", "core", "socket", "numa"], EditEffect.NEXT_ATTEMPT] = (
        "launcher"
    )
    """Cores to which the command that starts the ranks binds each rank. core: `threads_per_rank` cores; socket, numa:
    one socket or NUMA domain; none: all cores; launcher: what the command does by itself."""
    gpu_exchange: Annotated[Literal["auto", "nccl", "host"], EditEffect.NEXT_ATTEMPT] = "auto"
    """How vectors on GPUs are summed. nccl: by NCCL, which requires one GPU per rank; host: through host memory; auto:
    the first of these that is available. Sums are bit-identical for all values, except with `reduction: fastest`."""
    sync_batch_norm: bool = False
    """Batch normalization uses the samples of all ranks; false: of each rank (only for allreduce with `transport:
    mpi`)."""
    transport: Annotated[Literal["mpi", "simulated"], EditEffect.RESUME] = "mpi"
    """mpi: one process per rank; simulated: all ranks in one process with a virtual clock."""
    peer_timeout: Annotated[float, EditEffect.NEXT_ATTEMPT] = Field(600.0, gt=0)
    """Seconds that a rank waits for a message of another rank; then the run fails with the name of that rank."""
    simulation: SimulationConfig = SimulationConfig()
    """Virtual machine of `transport: simulated`."""

    def ranks_in(self, epoch: int) -> int:
        """Return the number of ranks in an epoch, counted from 1."""
        starts = {1: self.ranks} | (self.simulation.elastic if self.transport == "simulated" else {})
        return starts[max(start for start in starts if start <= max(epoch, 1))]

    @field_validator("gpu_exchange", mode="before")
    @classmethod
    def _refuse_cuda_aware(cls, gpu_exchange: Any) -> Any:
        if gpu_exchange == "cuda_aware":
            raise_config_error("sums by a CUDA-aware MPI are no longer possible; set nccl, host or auto")
        return gpu_exchange

    @model_validator(mode="after")
    def _ranks_exist(self) -> Self:
        # Without simulation, its section has no effect.
        most = max([self.ranks, *self.simulation.elastic.values()])
        for key, ranks in self.simulation.named_ranks.items():
            if self.transport == "simulated" and max(ranks, default=0) >= most:
                raise_config_error(
                    f"rank {max(ranks)} does not exist; use a rank from 0 to {most - 1}, or raise `parallel.ranks`",
                    "simulation",
                    key,
                )
        return self


class ResourcesConfig(ConfigModel):
    """Resources that one training requests from the scheduler."""

    runtime: Minutes = 60
    """Time limit: a number of minutes, or a time such as 2h or 1-12:00:00."""
    mem_mb: Megabytes = 4000
    """Memory of all processes together; with several nodes, Slurm gives each an equal part. A number of MB, or a size:
    4GB is 4000, 4G and 4GiB are 4096, because Slurm and LSF count 1024 in a G. May be written as `mem`."""
    nodes: int = Field(1, ge=1)
    """Number of nodes for the ranks."""
    partition: str | None = None
    """Slurm partition or LSF queue; null: the default of the site."""
    account: str | None = None
    """Slurm account or LSF project; null: the default of the Snakemake profile."""
    container: str | None = Field(None, examples=["apptainer exec --nv nnlo.sif"])
    """Command that runs a program in a container, such as `apptainer exec --nv nnlo.sif`: every rank starts in it, by
    the image's python3, which needs nnlo; the launcher (srun, mpiexec) stays outside. null: none."""

    @field_validator("container")
    @classmethod
    def _is_command(cls, container: str | None) -> str | None:
        try:
            words = shlex.split("null" if container is None else container)
        except ValueError as error:
            raise_config_error(f"{error}; close the quotation")
        if not words:
            raise_config_error("must not be empty; write for example: apptainer exec --nv nnlo.sif, or null")
        return container
