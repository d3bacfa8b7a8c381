"""What a Slurm offers: partitions, their time limits, and the accounts of this user."""

import getpass
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnlo_lib.cluster.slurm.slurm_queue import Command, memory_per_node, run_command
from nnlo_lib.core.batch_system import parse_slurm_minutes


@dataclass(frozen=True)
class Partition:
    """A partition; limits are infinite where there is none, `max_mem_mb` is the memory of a node in MB."""

    name: str
    is_default: bool
    state: str
    max_minutes: float
    max_nodes: float
    max_mem_mb: float = float("inf")


@dataclass(frozen=True)
class JobRequest:
    """What a job asks for, `mem_mb` for all nodes together; empty strings stand for the defaults of the site."""

    partition: str = ""
    account: str = ""
    runtime: float = 0
    nodes: int = 1
    mem_mb: int = 0


@dataclass(frozen=True)
class SlurmSite:
    """Partitions by name, and accounts; empty if the site does not answer or has no accounting."""

    partitions: Mapping[str, Partition]
    accounts: frozenset[str] = frozenset()

    @classmethod
    def ask(cls, run: Command = run_command) -> "SlurmSite":
        """Ask scontrol and sacctmgr; a command that fails leaves its part empty."""
        shown = run("scontrol", "show", "partition", "--oneliner", "--all")
        try:
            whose = f"user={getpass.getuser()}"
        except (KeyError, OSError):  # a user without an entry in the password file, as in some containers
            whose = "user=none"
        listed = run("sacctmgr", "--noheader", "--parsable2", "list", "associations", whose, "format=account")
        found = [
            _partition(line) for line in (shown.stdout.splitlines() if shown and not shown.returncode else [])
        ]
        accounts = listed.stdout.split() if listed and not listed.returncode else []
        return cls({each.name: each for each in found if each.name}, frozenset(accounts))

    def known(self, kind: str) -> str:
        """Return a phrase with the known values of a kind, `partitions` or `accounts`; else an empty string."""
        if kind == "partitions" and self.partitions:
            return "known: " + ", ".join(_described(each) for each in self.partitions.values())
        return "known: " + ", ".join(sorted(self.accounts)) if kind == "accounts" and self.accounts else ""

    def problems_of(self, requests: Iterable[JobRequest]) -> list[str]:
        """Return the different problems of several requests."""
        # One by one: many jobs ask for the same.
        return list(
            dict.fromkeys(
                problem for request in dict.fromkeys(requests) for problem in self.problems(request)
            )
        )

    def problems(self, request: JobRequest) -> Iterable[str]:
        """Yield a sentence for each part of a request that this site would refuse."""
        if request.account and self.accounts and request.account.lower() not in self.accounts:
            yield f"account {request.account} is not one of yours: set resources.account or SBATCH_ACCOUNT ({self.known('accounts')})"
        names = request.partition.split(",") if request.partition else self._default_names
        unknown = [name for name in names if name not in self.partitions]
        if self.partitions and unknown:
            yield f"partition {', '.join(unknown)} does not exist: set resources.partition or SBATCH_PARTITION ({self.known('partitions')})"
            return
        chosen = [self.partitions[name] for name in names if name in self.partitions]
        if chosen and all(each.max_minutes < request.runtime for each in chosen):
            yield (
                f"resources.runtime is {request.runtime:g} minutes, more than partition {', '.join(names)} allows: lower it, or "
                f"set resources.partition ({self.known('partitions')})"
            )
        if chosen and all(each.max_nodes < request.nodes for each in chosen):
            yield f"resources.nodes is {request.nodes}, more than partition {', '.join(names)} allows ({self.known('partitions')})"
        memory = memory_per_node(request.mem_mb, request.nodes)
        if chosen and all(each.max_mem_mb < memory for each in chosen):
            yield (
                f"resources.mem_mb is {memory} MB for each of {request.nodes} nodes, more than partition {', '.join(names)} allows: "
                f"lower it, or raise resources.nodes ({self.known('partitions')})"
            )

    @property
    def _default_names(self) -> list[str]:
        return [each.name for each in self.partitions.values() if each.is_default]


def _partition(line: str) -> Partition:
    fields = dict(re.findall(r"(\S+?)=(\S*)", line))
    return Partition(
        name=fields.get("PartitionName", ""),
        is_default=fields.get("Default") == "YES",
        state=fields.get("State", ""),
        max_minutes=_limit(parse_slurm_minutes(fields.get("MaxTime", ""))),
        max_nodes=_limit(float(fields["MaxNodes"]) if fields.get("MaxNodes", "").isdigit() else None),
        max_mem_mb=_limit(
            float(fields["MaxMemPerNode"]) if fields.get("MaxMemPerNode", "").isdigit() else None
        ),
    )


def _limit(value: float | None) -> float:
    return float("inf") if value is None else value


def _described(partition: Partition) -> str:
    limit = f" (up to {partition.max_minutes:g} minutes)" if partition.max_minutes != float("inf") else ""
    return f"{partition.name}{limit}"
