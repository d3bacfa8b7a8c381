"""Resources that one training needs."""

from dataclasses import dataclass

from nnlo_lib.config.run import Run


@dataclass(frozen=True)
class RunResources:
    """Processes, cores, GPUs, memory and time of one training, computed from its configuration.

    Attributes:
        run: configuration of the training.
    """

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
