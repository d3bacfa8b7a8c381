"""What one run asks of a machine or a scheduler."""

from dataclasses import dataclass

from nnlo_lib.config.run import Run


@dataclass(frozen=True)
class RunResources:
    """Processes, cores, GPUs, memory and time of one training, computed from its configuration."""

    run: Run

    @property
    def processes(self) -> int:
        """Processes that the training starts; all simulated ranks are one process."""
        return self.run.parallel.ranks if self.run.parallel.transport == "mpi" else 1

    @property
    def threads_per_process(self) -> int:
        """Cores that a process keeps busy."""
        return self.run.parallel.threads_per_rank

    @property
    def cores(self) -> int:
        """Cores that all processes together keep busy."""
        return self.processes * self.threads_per_process

    @property
    def nodes(self) -> int:
        """Nodes that the processes are spread over."""
        return min(self.run.resources.nodes, self.processes)

    @property
    def runtime_min(self) -> int:
        """Time limit in minutes."""
        return self.run.resources.runtime

    @property
    def memory_mb(self) -> int:
        """Memory of the first attempt, all processes together."""
        return self.run.resources.mem_mb

    @property
    def gpus(self) -> int:
        """GPUs: one for every `ranks_per_gpu` of the ranks that compute on a GPU."""
        parallel = self.run.parallel
        if not parallel.gpus_per_rank or parallel.transport == "simulated":
            return parallel.gpus_per_rank
        servers = 0 if parallel.master_gpu else self.run.algorithm.servers
        return -(-(parallel.ranks - servers) // parallel.ranks_per_gpu)

    @property
    def tasks_per_gpu(self) -> int:
        """Ranks that Slurm ties to each GPU; 0 leaves the choice to the ranks, which share unequally.

        Snakemake's plugin needs one of the two numbers; without it the plugin starts ranks anew for each GPU.
        """
        each = self.run.parallel.ranks_per_gpu
        return each if each * self.gpus == self.processes else 0

    @property
    def trainings_per_gpu(self) -> int:
        """Trainings like this that may share a GPU."""
        return max(1, self.run.parallel.ranks_per_gpu // self.processes) if self.gpus == 1 else 1

    @property
    def site(self) -> dict[str, int | str]:
        """Resources that depend on the site, by Snakemake's names; empty or 0 leaves one to the profile."""
        partition, account = self.run.resources.partition or "", self.run.resources.account or ""
        return {
            "slurm_partition": partition, "slurm_account": account, "lsf_queue": partition, "lsf_project": account,
            "gpu": self.gpus, "tasks_per_gpu": self.tasks_per_gpu,
        }  # fmt: skip
