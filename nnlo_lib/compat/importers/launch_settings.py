"""Ranks, threads, GPUs and memory of a training, computed from the options of its launch.

Options of launchers and of the commands that submit jobs are tables: launcher -> option -> meaning, number of values.
`environment` sets variables, `site` belongs into the profile, `lost` is a part of the job's meaning that an experiment
does not express. All options that a table lacks are remarks.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path

from nnlo_lib.core.errors import UserError


def _options(**names: str) -> dict[str, tuple[str, int]]:
    """Return the meaning and the number of values of each option, from `meaning="name name:value_count ..."`."""
    words = [(meaning, *word.partition(":")) for meaning, text in names.items() for word in text.split()]
    return {name: (meaning, int(count or 1)) for meaning, name, _, count in words}


# Open MPI and Hydra (MPICH, Intel MPI) install commands of the same names, so that one table serves both.
MPI = _options(
    ranks="n np c",
    ranks_per_node="N npernode ppn perhost",
    hosts="H host hosts",
    hostfile="hostfile machinefile f machine default-hostfile",
    environment="x genv:2 env:2",
)
SLURM = _options(
    ranks="n ntasks",
    nodes="N nodes",
    ranks_per_node="ntasks-per-node tasks-per-node",
    threads="c cpus-per-task",
    gpus="G gpus",
    gpus_per_rank="gpus-per-task",
    gpus_per_node="gpus-per-node",
    gres="gres",
    account="A account",
    partition="p partition",
    slurm_time="t time",
    memory_per_node="mem",
    memory_per_cpu="mem-per-cpu",
    environment="export",
    site="q qos C constraint reservation",
    lost="a array d dependency multi-prog:0",
)
LSF = _options(
    ranks="n",
    nodes="nnodes",
    account="P",
    partition="q",
    lsf_time="W",
    lsf_span="R",
    lsf_gpu="gpu",
    environment="env",
    lost="w",
)
JSRUN = _options(
    ranks="p np",
    resource_sets="n nrs",
    ranks_per_set="a tasks_per_rs",
    threads_per_set="c cpu_per_rs",
    gpus_per_set="g gpu_per_rs",
    sets_per_node="r rs_per_host",
    environment="E env",
)
APRUN = _options(
    ranks="n pes", ranks_per_node="N pes-per-node", threads="d cpus-per-pe", environment="e", lost="B:0"
)
COUNTED = _options(ranks="n np num-proc")
LAUNCHERS = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpirun_rsh", "mpiexec.mpich", "mpirun.mpich",
                     "mpirun.openmpi", "mpiexec.openmpi"), MPI),
    "srun": SLURM,
    "jsrun": JSRUN,
    "aprun": APRUN,
    "ibrun": COUNTED,
    "horovodrun": COUNTED,
}  # fmt: skip
# Commands and headers that request the job in which a launcher runs.
SUBMITTERS = {"sbatch": SLURM, "salloc": SLURM, "bsub": LSF}
# Launchers whose short options may have their value attached, as in -n4; the others write -np, -ppn with one hyphen.
WITH_ATTACHED_VALUES = {"srun", "sbatch", "salloc", "jsrun", "aprun"}
NOTES = {
    "environment": "the ranks inherit the environment of nnlo; set the variable before you start nnlo",
    "other": "not translated; if the training needs it, set it in the Snakemake profile (profiles/)",
    "output": "nnlo writes logs to the run folder",
}
REASONS = {
    "site": "it is an option of your site; add it to slurm_extra or lsf_extra of the Snakemake profile",
    "lost": "an experiment describes one training; repeat, delay or order trainings with Snakemake",
}
NUMBERS = {
    "ranks", "ranks_per_node", "nodes", "threads", "resource_sets", "ranks_per_set", "threads_per_set", "gpus_per_set",
    "sets_per_node", "gpus_per_rank", "gpus_per_node", "gpus",
}  # fmt: skip
MEMORY_UNITS_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
MINUTES_PER_DAY = 1440


def parse_count(text: str, option: str) -> int:
    """Return a non-negative integer; `option` begins the error message. Raises UserError for other texts."""
    if not text.isascii() or not text.isdigit():
        hint = "; set the variable in the script, or write the number" if "$" in text or "`" in text else ""
        raise UserError(f"{option.split(' ')[0]}: expected a non-negative integer, got '{text}'{hint}")
    return int(text)


def slurm_minutes(text: str, option: str) -> int:
    """Return the minutes of a Slurm time: minutes, minutes:seconds, hours:minutes:seconds, or the same after days-.

    Raises UserError if a part is not a number.
    """
    days, dash, clock = text.rpartition("-")
    parts = [parse_count(part, option) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *parts, 0], 2: [0, *parts]}.get(len(parts), parts[:3])
    return parse_count(days or "0", option) * MINUTES_PER_DAY + hours * 60 + minutes + (seconds > 0)


def lsf_minutes(text: str, option: str) -> int:
    """Return the minutes of an LSF time, minutes or hours:minutes, without the host that may follow a slash.

    Raises UserError if a part is not a number.
    """
    *hours, minutes = [parse_count(part, option) for part in text.partition("/")[0].split(":")]
    return (hours[0] * 60 if hours else 0) + minutes


def size_mb(text: str, option: str) -> int:
    """Return a size of Slurm, such as 4G, in MB. Raises UserError for other texts."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.I)
    if not found:
        raise UserError(f"{option.split(' ')[0]}: expected a size such as 4G, got '{text}'")
    return max(1, round(int(found[1]) * MEMORY_UNITS_MB[found[2].upper() or "M"]))


# Parsers of other values, and the meanings of the numbers that they return.
PARSERS: dict[str, tuple[str, Callable[[str, str], int]]] = {
    "slurm_time": ("runtime", slurm_minutes), "lsf_time": ("runtime", lsf_minutes),
    "memory_per_node": ("memory_per_node", size_mb), "memory_per_cpu": ("memory_per_cpu", size_mb),
}  # fmt: skip


@dataclass
class LaunchSettings:
    """Options of a launcher or of a job: numbers, texts such as `partition` and the written options, by meaning.

    Attributes:
        environment: variables that the launcher sets for the ranks.
        written: all options as they were written.
        lost: options without an equivalent that change what the job does, with the reason.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def add(self, meaning: str, value: str, written: str) -> None:
        """Record one option with its values, separated by spaces. Raises UserError if a number is required."""
        self.written.append(written)
        if meaning == "environment":
            # NAME=value, `NAME value` (Hydra's -genv), or Slurm's ALL,NAME=value
            words = re.sub(r"^(\w+) (?=\S+$)", r"\1=", value).split(",")
            self.environment |= dict(word.split("=", 1) for word in words if "=" in word)
        if meaning in NOTES:
            self.differences.append(f"{written}: {NOTES[meaning]}")
        elif meaning in REASONS:
            self.lost.append((written, REASONS[meaning]))
        elif meaning in NUMBERS:
            self._set(meaning, parse_count(value, written), written)
        elif meaning in PARSERS:
            number, parse = PARSERS[meaning]
            self._set(number, parse(value, written), written)
        else:
            getattr(self, f"_add_{meaning}", partial(self._add_text, meaning))(value, written)

    def merged(self, inner: "LaunchSettings") -> "LaunchSettings":
        """Return the settings of this job with the settings of the launcher inside it, which take precedence."""
        pairs = [(getattr(self, each.name), getattr(inner, each.name)) for each in fields(self)]
        return LaunchSettings(*(one | two if isinstance(one, dict) else one + two for one, two in pairs))

    def source(self, *meanings: str) -> str:
        """Return the options of the meanings as they were written."""
        return ", ".join(dict.fromkeys(self.sources[each] for each in meanings if each in self.sources))

    def _set(self, meaning: str, value: int, written: str) -> None:
        self.numbers[meaning], self.sources[meaning] = value, written

    def _add_text(self, meaning: str, value: str, written: str) -> None:
        self.texts[meaning], self.sources[meaning] = value, written

    def _add_gres(self, value: str, written: str) -> None:
        """Add GPUs of a node from Slurm's `gpu:2` or `gpu:a100:2`; other resources belong to the site."""
        for each in value.split(","):
            kind, *rest = each.split(":")
            if kind == "gpu":
                count = rest[-1] if rest and rest[-1].isdigit() else "1"
                self._set("gpus_per_node", parse_count(count, written), written)
            else:
                self.lost.append((written, REASONS["site"]))

    def _add_lsf_gpu(self, value: str, written: str) -> None:
        found = re.search(r"num=(\d+)(/task)?", value)
        per_task = bool(found and found[2])
        self._set("gpus_per_rank" if per_task else "gpus_per_node", int(found[1]) if found else 1, written)

    def _add_lsf_span(self, value: str, written: str) -> None:
        if found := re.fullmatch(r"span\[ptile=(\d+)\]", value):
            self._set("ranks_per_node", int(found[1]), written)
        elif value == "span[hosts=1]":
            self._set("nodes", 1, written)
        else:
            self.lost.append((written, REASONS["site"]))

    def _add_hostfile(self, value: str, written: str) -> None:
        """Add the hosts of a file with lines such as `node1 slots=2` or `node1:2`."""
        if not Path(value).is_file():
            self._add_text("unknown_hosts", value, written)
            return
        hosts = []
        for line in Path(value).read_text(errors="replace").splitlines():
            if words := line.partition("#")[0].split():
                slots = [word.removeprefix("slots=") for word in words if word.startswith("slots=")]
                hosts.append(f"{words[0]}:{slots[0]}" if slots else words[0])
        self._add_hosts(",".join(hosts), written)

    def _add_hosts(self, value: str, written: str) -> None:
        """Add hosts such as n1:2,n2; a host without a number has one slot."""
        hosts = [host.partition(":") for host in value.split(",") if host]
        self._set("slots", sum(parse_count(slots or "1", written) for _, _, slots in hosts), written)
        if len(names := {name for name, _, _ in hosts}) > 1:
            self._set("hosts", len(names), written)


def add_options(
    launcher: str,
    table: dict[str, tuple[str, int]],
    words: list[str],
    settings: LaunchSettings,
    starts: Callable[[str], bool] = lambda word: False,
) -> list[str]:
    """Add the options of a launcher to `settings`; return the words from the first that belongs to no option.

    A word for which `starts` returns True is no value of an unknown option.
    Raises UserError if the value of an option is missing or not valid.
    """
    others: list[list[str]] = []
    is_open = False  # the words that follow an unknown option may be its values
    while words:
        written, equals, value = words[0].partition("=")
        name = written.lstrip("-")
        if (
            name not in table
            and written[1:2] != "-"
            and launcher in WITH_ATTACHED_VALUES
            and name[:1] in table
        ):
            name, written, equals, value = name[0], written[:2], "=", words[0][2:]
        if words[0].startswith("-") and name in table:
            meaning, count = table[name]
            values = [value] if equals else words[1 : 1 + count]
            if len(values) < count and not equals:
                raise UserError(f"{launcher}: {written} requires a value; write it after the option")
            words = words[1 if equals else 1 + count :]
            settings.add(meaning, " ".join(values), " ".join([written, *values]))
            is_open = False
        elif words[0].startswith("-"):
            others.append([words[0]])
            is_open, words = not equals, words[1:]
        elif is_open and not starts(words[0]):
            others[-1].append(words[0])
            words = words[1:]
        else:
            break
    settings.written += map(" ".join, others)
    settings.differences += [f"{' '.join(other)}: {NOTES['other']}" for other in others]
    return words


@dataclass(frozen=True)
class RankLayout:
    """Ranks of a training and their share of a machine, computed from the options of its launch.

    Attributes:
        launcher: an empty string if the command starts one process itself.
        job: options of the job in which the launcher runs.
        step: options of the launcher, which take precedence.
    """

    launcher: str = ""
    job: LaunchSettings = field(default_factory=LaunchSettings)
    step: LaunchSettings = field(default_factory=LaunchSettings)

    @cached_property
    def settings(self) -> LaunchSettings:
        """Options of the job and of the launcher."""
        return self.job.merged(self.step)

    @property
    def ranks(self) -> tuple[int, str]:
        """Number of ranks, and the options from which it follows."""
        if not self.launcher:
            return 1, ""
        if count := _rank_count(self.step) or _rank_count(self.settings):
            return count
        # One rank per node of the job, which some launchers ignore.
        if self.nodes and self.launcher not in ("aprun", "jsrun"):
            return self.nodes, self.settings.source("nodes", "hosts")
        return 1, ""

    @property
    def has_unknown_ranks(self) -> bool:
        """True if the number of ranks is neither written nor 1 by the launcher's default."""
        by_site = self.launcher in ("jsrun", "ibrun") or "unknown_hosts" in self.settings.texts
        return by_site and self.ranks == (1, "")

    @property
    def nodes(self) -> int:
        """Number of nodes; 0 if it is not given."""
        numbers = self.settings.numbers
        if per_node := numbers.get("ranks_per_node", 0) if "ranks" in numbers else 0:
            return numbers.get("nodes") or numbers.get("hosts") or -(-numbers["ranks"] // per_node)
        return numbers.get("nodes") or numbers.get("hosts", 0)

    @property
    def threads(self) -> tuple[int, str]:
        """Cores of a rank, and the options from which the number follows; 0 if it is not given."""
        numbers = self.settings.numbers
        if "threads_per_set" in numbers:
            each = max(1, numbers["threads_per_set"] // numbers.get("ranks_per_set", 1))
            return each, self.settings.source("threads_per_set", "ranks_per_set")
        return numbers.get("threads", 0), self.settings.source("threads")

    @property
    def gpus(self) -> tuple[int, str]:
        """Number of GPUs of all ranks, and the options from which it follows; -1 if no option names GPUs."""
        numbers, source = self.settings.numbers, self.settings.source
        if "gpus_per_rank" in numbers:
            return numbers["gpus_per_rank"] * self.ranks[0], source("gpus_per_rank")
        if "gpus_per_set" in numbers:
            return numbers["gpus_per_set"] * (resource_sets(self.settings) or 1), source("gpus_per_set")
        if "gpus" in numbers:
            return numbers["gpus"], source("gpus")
        if "gpus_per_node" in numbers:
            return numbers["gpus_per_node"] * (self.nodes or 1), source("gpus_per_node", "nodes")
        return -1, ""

    @property
    def memory_mb(self) -> tuple[int, str]:
        """Memory of all ranks in MB, and the options from which it follows; 0 if it is not given."""
        numbers, source = self.settings.numbers, self.settings.source
        if "memory_per_node" in numbers:
            return numbers["memory_per_node"] * (self.nodes or 1), source("memory_per_node", "nodes")
        cores = self.ranks[0] * max(1, self.threads[0])
        return numbers.get("memory_per_cpu", 0) * cores, source("memory_per_cpu")


def resource_sets(settings: LaunchSettings) -> int:
    """Return the number of resource sets of jsrun; 0 if the options do not state it."""
    numbers = settings.numbers
    return numbers.get("resource_sets") or numbers.get("nodes", 0) * numbers.get("sets_per_node", 0)


def _rank_count(settings: LaunchSettings) -> tuple[int, str] | None:
    """Return the number of ranks that options state, and these options; None if they state none."""
    numbers, source = settings.numbers, settings.source
    if sets := resource_sets(settings):
        count = sets * numbers.get("ranks_per_set", 1)
        meanings = ["resource_sets"] if "resource_sets" in numbers else ["nodes", "sets_per_node"]
        return count, source(*meanings, "ranks_per_set")
    for meaning in ("ranks", "slots"):
        if meaning in numbers:
            return numbers[meaning], source(meaning)
    if {"nodes", "ranks_per_node"} <= set(numbers):
        return numbers["nodes"] * numbers["ranks_per_node"], source("nodes", "ranks_per_node")
    return None
