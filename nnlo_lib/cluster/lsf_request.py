"""Requests of jobs to LSF: slots, slots per host and GPUs per host, from an experiment and the profile for LSF."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlo_lib.cluster.submission import read_profile, resource_value
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.experiment import RunResources

PROFILE = Path("lsf/config.yaml")  # where `snakemake --profile lsf` finds it, from the root of a clone
DEFAULT_SLOTS_PER_HOST = 32  # of the profile that comes with nnlo
DEFAULT_GPU_OPTIONS = "j_exclusive=yes"  # no other job of LSF uses the GPUs; ranks of the job may share them


@dataclass(frozen=True)
class LsfProfile:
    """Resources that the profile sets for the rules: `set-resources`, by rule."""

    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = PROFILE) -> "LsfProfile":
        """Return the profile of this clone, or an empty one if there is none. Raises UserError if it is no YAML."""
        return cls(read_profile(path).get("set-resources") or {})

    def slots_per_host(self, rule: str) -> int:
        """Return `ptile` of a rule."""
        return int(self._of(rule, "ptile") or DEFAULT_SLOTS_PER_HOST)

    def gpu_options(self, rule: str) -> str:
        """Return the options of GPUs of a rule; an empty string if the profile sets none."""
        return self._of(rule, "lsf_gpu")

    def gpu_request(self, rule: str) -> str:
        """Return the profile's own option of bsub for GPUs; an empty string if it has none."""
        words = self._of(rule, "lsf_extra").split()
        return f"-gpu {words[words.index('-gpu') + 1]}" if "-gpu" in words[:-1] else ""

    def _of(self, rule: str, key: str) -> str:
        value = resource_value((self.resources.get(rule) or {}).get(key, ""))
        return "" if value is None else str(value)


@dataclass(frozen=True)
class LsfRequest:
    """Slots and GPUs of one job.

    Attributes:
        slots: a slot is one thread of a rank.
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
    """Return the `ptile` of a job with several ranks: the profile's, unless the experiment sets several nodes."""
    return -(-processes // nodes) * (slots // processes) if nodes > 1 else ptile


def lsf_requests(experiment: Experiment, profile: LsfProfile | None = None) -> list[str]:
    """Return a line with the options of bsub for each kind of job; by default with the profile of this folder."""
    profile = profile or LsfProfile.read()
    lines = []
    if experiment.search:
        lines.append(f"search, fold tasks: {_training(experiment, 'fold_task', profile)}")
    for name, run in {} if experiment.search and not experiment.runs else experiment.variants.items():
        lines.append(f"run {name}: {_training(run, 'train', profile)}")
    return lines


def _training(run: Run, rule: str, profile: LsfProfile) -> str:
    needs = RunResources(run)
    ptile = slots_per_host(needs.cores, needs.processes, needs.nodes, profile.slots_per_host(rule))
    # A fold task of one rank is asked for as a job of several ranks is.
    is_single = rule == "train" and needs.processes == 1
    request = LsfRequest(needs.cores, 0 if is_single else ptile, needs.gpus)
    return f"{_options(run, rule, request, profile)} -W {needs.runtime_min}"


def _options(run: Run, rule: str, request: LsfRequest, profile: LsfProfile) -> str:
    # profiles/lsf reads the same variable.
    queue = run.resources.partition or os.environ.get("LSB_DEFAULTQUEUE", "")
    own = profile.gpu_request(rule)
    asked = replace(
        request, gpus=0 if own else request.gpus, gpu_options=profile.gpu_options(rule) or DEFAULT_GPU_OPTIONS
    )
    words = ["bsub", f"-q {shlex.quote(queue)}" if queue else "", asked.words, own]
    return " ".join(filter(None, words))
