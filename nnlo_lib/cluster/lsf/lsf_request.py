"""What one job asks of LSF: slots, slots per host, and GPUs per host."""

import shlex
from dataclasses import dataclass

DEFAULT_GPU_OPTIONS = "j_exclusive=yes"  # no other job of LSF uses the GPUs; ranks of the job may share them


@dataclass(frozen=True)
class LsfRequest:
    """Slots and GPUs of one job.

    Attributes:
        slots: number of slots of the job; a slot is one thread of a rank.
        slots_per_host: `ptile`, the largest number of slots on a host; 0: all slots are on one host.
        gpus: number of GPUs of the job on all hosts.
        gpu_options: options of the GPUs after their number, separated by colons.
    """

    slots: int
    slots_per_host: int = 0
    gpus: int = 0
    gpu_options: str = DEFAULT_GPU_OPTIONS

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.slots // (self.slots_per_host or self.slots))

    @property
    def gpus_per_host(self) -> int:
        """Number of GPUs of a host that is full; LSF reserves as many on a host that is not."""
        full = min(self.slots_per_host or self.slots, self.slots)
        return -(-self.gpus * full // self.slots)

    @property
    def gpu_words(self) -> str:
        """Option of bsub for the GPUs, quoted for the shell; an empty string without GPUs."""
        # LSF counts GPUs per host. `num=N/task` counts per slot, and a rank may have several slots.
        what = ":".join(filter(None, (f"num={self.gpus_per_host}", self.gpu_options)))
        return f"-gpu {shlex.quote(what)}" if self.gpus else ""

    @property
    def words(self) -> str:
        """Options of bsub for slots, hosts and GPUs."""
        span = f"span[ptile={self.slots_per_host}]" if self.slots_per_host else "span[hosts=1]"
        return " ".join(filter(None, (f"-n {self.slots}", f"-R {span}", self.gpu_words)))


def slots_per_host(slots: int, processes: int, nodes: int, ptile: int) -> int:
    """Return the `ptile` of a job with several ranks.

    Args:
        slots: number of slots of the job.
        processes: number of ranks.
        nodes: hosts for the ranks; 1: as many as `ptile` makes necessary.
        ptile: slots per host of the profile.
    """
    return -(-processes // nodes) * (slots // processes) if nodes > 1 else ptile
