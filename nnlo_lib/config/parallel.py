"""How many processes train one model, how they talk and what they ask of the scheduler."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error

Rank = Annotated[int, Field(ge=0)]
Speed = Annotated[float, Field(gt=0)]


class StragglersConfig(ConfigModel):
    """Ranks that now and then compute more slowly."""

    fraction: float = Field(
        0.0, ge=0, le=1, description="Share of all ranks that straggle, drawn by the seed."
    )
    ranks: tuple[Rank, ...] = Field((), description="Ranks that straggle in any case.")
    slowdown: float = Field(2.0, ge=1, description="How many times as long a straggling step takes.")
    probability: float = Field(
        1.0, ge=0, le=1, description="Probability that a step of such a rank straggles."
    )


class RankFailureConfig(ConfigModel):
    """A rank that stands still for a while and goes on where it was."""

    rank: Rank = Field(description="Which one.")
    at: float = Field(ge=0, description="Virtual seconds from the start at which it stops.")
    seconds: float = Field(gt=0, description="Seconds until it is back.")


class SimulationConfig(ConfigModel):
    """The virtual machine that `transport: simulated` pretends to have."""

    compute: Literal["exact", "batched"] = Field(
        "exact",
        description="Gradients rank by rank, with the bits of `mpi`, or those of all ranks in a few large calls: "
        "faster with many small replicas, equal up to rounding.",
    )
    sample_seconds: Speed | Literal["measured"] = Field(
        1e-4,
        description="Seconds to compute one sample on a rank of speed 1; measured: the real seconds that this process "
        "took, for calibration (such a run does not replay).",
    )
    latency: float = Field(
        1e-5,
        ge=0,
        description="Seconds before a message's first byte arrives; a collective call takes one or two rounds of messages.",
    )
    bandwidth: float = Field(
        1.25e9,
        gt=0,
        description="Bytes per second of each rank's network card, shared by all that it sends (1.25e9: 10 Gb/s).",
    )
    speeds: dict[Rank, Speed] | tuple[Speed, ...] = Field(
        {}, description="Relative speed of ranks, by rank or of all in their order; 1 where nothing is said."
    )
    stragglers: StragglersConfig = Field(
        StragglersConfig(), description="Ranks that now and then compute more slowly."
    )
    jitter: float = Field(
        0.0, ge=0, description="Sigma of a log-normal factor, of mean 1, on the time of each step."
    )
    failures: tuple[RankFailureConfig, ...] = Field((), description="When ranks stand still.")
    mtbf: float | None = Field(
        None,
        gt=0,
        description="Mean seconds between failures of each rank, exponential; null: none are drawn.",
    )
    repair: float = Field(10.0, gt=0, description="Mean seconds that a drawn failure lasts, exponential.")
    loss: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Probability that a message between two ranks is lost and sent again; each round of a collective call "
        "waits for the last of its messages.",
    )
    retransmit: float = Field(0.2, gt=0, description="Seconds after which a lost message is sent again.")

    @model_validator(mode="after")
    def _measured_alone(self) -> Self:
        if self.sample_seconds == "measured" and self.compute == "batched":
            raise_config_error(
                "gradients of several ranks at once cannot be measured; use compute: exact", "sample_seconds"
            )
        return self

    def speed_of_ranks(self, size: int) -> list[float]:
        """Return the relative speed of each of `size` ranks."""
        known = self.speeds if isinstance(self.speeds, dict) else dict(enumerate(self.speeds))
        return [known.get(rank, 1.0) for rank in range(size)]

    @property
    def named_ranks(self) -> dict[str, set[int]]:
        """Ranks that are named, by key."""
        failing, straggling = {each.rank for each in self.failures}, set(self.stragglers.ranks)
        speeds = self.speeds if isinstance(self.speeds, dict) else range(len(self.speeds))
        return {"failures": failing, "stragglers": straggling, "speeds": set(speeds)}


class ParallelConfig(ConfigModel):
    """How many processes train one model and how they talk."""

    ranks: int = Field(2, ge=1, description="MPI processes of one training, servers included.")
    processes_per_worker: int = Field(
        1, ge=1, description="Ranks that form one worker and average their gradients first."
    )
    threads_per_rank: int = Field(
        1, ge=1, description="Threads of each rank (up to cores / ranks is sensible)."
    )
    gpus_per_rank: int = Field(
        0, ge=0, le=1, description="GPUs of each rank: 1, or 0 to compute on processors."
    )
    ranks_per_gpu: int = Field(1, ge=1, description="Ranks that share a GPU, where ranks have one.")
    master_gpu: bool = Field(True, description="Whether servers have a GPU, too, where workers have.")
    gpu_exchange: Literal["auto", "nccl", "cuda_aware", "host"] = Field(
        "auto",
        description="How gradients and parameters on GPUs are summed: through NCCL (a GPU for each rank), by an MPI that "
        "reads GPU memory, or through host memory; auto: the first of these that is there. The sums are the same to the bit "
        "(unless reduction: fastest).",
    )
    sync_batch_norm: bool = Field(
        False,
        description="Batch normalization over the samples of all ranks, not of each (algorithm allreduce).",
    )
    transport: Literal["mpi", "simulated"] = Field(
        "mpi", description="Real processes, or all ranks in one process under a virtual clock."
    )
    peer_timeout: float = Field(
        600.0, gt=0, description="Seconds a rank waits for a silent peer before it ends the run and names it."
    )
    simulation: SimulationConfig = Field(SimulationConfig(), description="Used by `transport: simulated`.")

    @model_validator(mode="after")
    def _ranks_exist(self) -> Self:
        for key, ranks in self.simulation.named_ranks.items():
            if self.transport == "simulated" and max(ranks, default=0) >= self.ranks:
                raise_config_error(
                    f"there is no rank {max(ranks)}: ranks are numbered 0 to {self.ranks - 1}",
                    "simulation",
                    key,
                )
        return self


class ResourcesConfig(ConfigModel):
    """What one training asks of the scheduler."""

    runtime: int = Field(60, ge=1, description="Time limit in minutes.")
    mem_mb: int = Field(4000, ge=1, description="Memory of the whole job in MB.")
    nodes: int = Field(1, ge=1, description="Nodes that the ranks are spread over.")
    partition: str | None = Field(None, description="Slurm partition or LSF queue; null: the site's default.")
    account: str | None = Field(None, description="Slurm account or LSF project; null: the profile's.")
