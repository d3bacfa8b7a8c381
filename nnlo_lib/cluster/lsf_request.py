"""Requests of jobs to LSF: slots, slots per host and GPUs per host, from an experiment and the profile for LSF."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
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

    def value(self, rule: str, key: str) -> str:
        """Return a resource of a rule as text; an empty string if the profile does not set it."""
        value = resource_value((self.resources.get(rule) or {}).get(key, ""))
        return "" if value is None else str(value)


@dataclass(frozen=True)
class LsfRequest:
    """Slots and GPUs of one job."""

    slots: int  # a slot is one thread of a rank
    slots_per_host: int = 0  # `ptile`, the largest number of slots on a host; 0: all slots are on one host
    gpus: int = 0  # number of GPUs of the job on all hosts
    gpu_options: str = DEFAULT_GPU_OPTIONS  # options of the GPUs after their number, separated by colons

    @property
    def gpu_words(self) -> str:
        """Option of bsub for the GPUs, quoted for the shell; an empty string without GPUs."""
        # LSF counts GPUs per host, and reserves as many on a host that is not full. `num=N/task` counts per slot, and a rank may
        # have several slots.
        per_host = -(-self.gpus * min(self.slots_per_host or self.slots, self.slots) // self.slots)
        what = ":".join(filter(None, (f"num={per_host}", self.gpu_options)))
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
        lines.append(f"search, fold tasks: {_command(experiment, 'fold_task', profile)}")
    for name, run in {} if experiment.search and not experiment.runs else experiment.variants.items():
        lines.append(f"run {name}: {_command(run, 'train', profile)}")
    return lines


def _command(run: Run, rule: str, profile: LsfProfile) -> str:
    needs, extra = RunResources(run), profile.value(rule, "lsf_extra").split()
    own_gpus = f"-gpu {extra[extra.index('-gpu') + 1]}" if "-gpu" in extra[:-1] else ""
    site = int(profile.value(rule, "ptile") or DEFAULT_SLOTS_PER_HOST)
    ptile = slots_per_host(needs.cores, needs.processes, needs.nodes, site)
    # A fold task of one rank is asked for as a job of several ranks is.
    is_single = rule == "train" and needs.processes == 1
    gpu_options = profile.value(rule, "lsf_gpu") or DEFAULT_GPU_OPTIONS
    request = LsfRequest(needs.cores, 0 if is_single else ptile, 0 if own_gpus else needs.gpus, gpu_options)
    # profiles/lsf reads the same variable.
    queue = run.resources.partition or os.environ.get("LSB_DEFAULTQUEUE", "")
    words = [
        "bsub",
        f"-q {shlex.quote(queue)}" if queue else "",
        request.words,
        own_gpus,
        f"-W {needs.runtime_min}",
    ]
    return " ".join(filter(None, words))
