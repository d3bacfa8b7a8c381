"""How many processes train one model, how they talk and what they ask of the scheduler."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class Simulation(Strict):
    """The virtual machine that `transport: simulated` pretends to have."""

    compute: Literal["exact", "batched"] = Field(
        "exact",
        description="Gradients rank by rank, with the bits of `mpi`, or those of all ranks in a few large calls: "
        "faster with many small replicas, equal up to rounding.",
    )
    sample_seconds: float = Field(1e-4, gt=0, description="Seconds to compute one sample.")
    latency: float = Field(1e-5, ge=0, description="Seconds before a message's first byte arrives.")
    bandwidth: float = Field(1.25e9, gt=0, description="Bytes per second of each link (1.25e9: 10 Gb/s).")


class Parallel(Strict):
    """How many processes train one model and how they talk."""

    ranks: int = Field(2, ge=1, description="MPI processes of one training, servers included.")
    processes_per_worker: int = Field(
        1, ge=1, description="Ranks that form one worker and average their gradients first (downpour only)."
    )
    threads_per_rank: int = Field(
        1, ge=1, description="Threads of each rank (up to cores / ranks is sensible)."
    )
    gpus_per_rank: int = Field(0, ge=0, le=1, description="GPUs of each rank.")
    transport: Literal["mpi", "simulated"] = Field(
        "mpi", description="Real processes, or all ranks in one process under a virtual clock."
    )
    peer_timeout: float = Field(
        600.0, gt=0, description="Seconds a rank waits for a silent peer before it ends the run and names it."
    )
    simulation: Simulation = Field(Simulation(), description="Used by `transport: simulated`.")


class Resources(Strict):
    """What one training asks of the scheduler."""

    runtime: int = Field(60, ge=1, description="Time limit in minutes.")
    mem_mb: int = Field(4000, ge=1, description="Memory of the whole job in MB.")
    nodes: int = Field(1, ge=1, description="Nodes that the ranks are spread over.")
    partition: str | None = Field(None, description="Slurm partition or LSF queue; null: the site's default.")
    account: str | None = Field(None, description="Slurm account or LSF project; null: the profile's.")
