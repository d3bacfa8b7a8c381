"""The values of the profile for LSF that decide on hosts and GPUs of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.cluster.snakemake_job import read_profile, resource_value

PROFILE = Path("lsf/config.yaml")  # where `snakemake --profile lsf` finds it, from the root of a clone
DEFAULT_SLOTS_PER_HOST = 32  # of the profile that comes with nnlo


@dataclass(frozen=True)
class LsfProfile:
    """Resources that the profile sets for the rules.

    Attributes:
        resources: `set-resources` of the profile, by rule.
    """

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
