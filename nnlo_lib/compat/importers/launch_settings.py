"""Options of launchers and of the commands that submit jobs, and the ranks and nodes that follow from them.

Tables: launcher -> option -> meaning, number of values. `environment` sets variables, `site` belongs into the profile,
`lost` is a part of the job's meaning that an experiment does not express. All options that a table lacks are listed.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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
TEXTS = {"account", "partition"}
MEMORY_UNITS_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
Found = Iterable[tuple[str, Any]]  # meanings and values that follow from one option


def parse_count(text: str, option: str) -> int:
    """Return a non-negative integer; `option` begins the error message. Raises UserError for other texts."""
    if not text.isascii() or not text.isdigit():
        hint = "; set the variable in the script, or write the number" if "$" in text or "`" in text else ""
        raise UserError(f"{option.split(' ')[0]}: expected a non-negative integer, got '{text}'{hint}")
    return int(text)


def _slurm_time(text: str, option: str) -> Found:
    """Read minutes, minutes:seconds, hours:minutes:seconds, or days-hours with minutes and seconds if wanted."""
    days, dash, clock = text.rpartition("-")
    parts = [parse_count(part, option) for part in clock.split(":")]
    padded = [*parts, 0, 0] if dash or len(parts) > 2 else [0, *parts, 0]
    hours, minutes, seconds = padded[:3]
    yield "runtime", (parse_count(days or "0", option) * 24 + hours) * 60 + minutes + (seconds > 0)


def _lsf_time(text: str, option: str) -> Found:
    """Read minutes or hours:minutes, without the host that may follow a slash."""
    *hours, minutes = [parse_count(part, option) for part in text.partition("/")[0].split(":")]
    yield "runtime", sum(hours[:1]) * 60 + minutes


def _memory(meaning: str) -> Callable[[str, str], Found]:
    def read(text: str, option: str) -> Found:
        found = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.I)
        if not found:
            raise UserError(f"{option.split(' ')[0]}: expected a size such as 4G, got '{text}'")
        yield meaning, max(1, round(int(found[1]) * MEMORY_UNITS_MB[found[2].upper() or "M"]))

    return read


def _gres(text: str, option: str) -> Found:
    """Read GPUs of a node, as `gpu:2` or `gpu:a100:2`; other resources belong to the site."""
    for each in text.split(","):
        kind, *rest = each.split(":")
        count = int(rest[-1]) if rest and rest[-1].isdigit() else 1
        yield ("gpus_per_node", count) if kind == "gpu" else ("site", each)


def _lsf_gpu(text: str, option: str) -> Found:
    found = re.search(r"num=(\d+)(/task)?", text)
    yield "gpus_per_rank" if found and found[2] else "gpus_per_node", int(found[1]) if found else 1


def _lsf_span(text: str, option: str) -> Found:
    if found := re.fullmatch(r"span\[(?:ptile=(\d+)|hosts=1)\]", text):
        yield ("ranks_per_node", int(found[1])) if found[1] else ("nodes", 1)
    else:
        yield "site", text


def _hosts(text: str, option: str) -> Found:
    """Read hosts such as n1:2,n2; a host without a number has one slot."""
    hosts = [host.partition(":") for host in text.split(",") if host]
    yield "slots", sum(parse_count(slots or "1", option) for _, _, slots in hosts)
    if len(names := {name for name, _, _ in hosts}) > 1:
        yield "hosts", len(names)


def _hostfile(text: str, option: str) -> Found:
    """Read the hosts of a file with lines such as `node1 slots=2` or `node1:2`."""
    if not Path(text).is_file():
        yield "unknown_hosts", text
        return
    lines = re.sub(r"#.*", "", Path(text).read_text(errors="replace"))
    hosts = re.findall(r"^[ \t]*(\S+)(?:.*?\sslots=(\S+))?", lines, re.M)
    yield from _hosts(",".join(f"{name}:{slots}" if slots else name for name, slots in hosts), option)


PARSERS: dict[str, Callable[[str, str], Found]] = {
    "slurm_time": _slurm_time, "lsf_time": _lsf_time, "memory_per_node": _memory("memory_per_node"), "lsf_gpu": _lsf_gpu,
    "memory_per_cpu": _memory("memory_per_cpu"), "gres": _gres, "lsf_span": _lsf_span, "hosts": _hosts, "hostfile": _hostfile,
}  # fmt: skip


@dataclass
class LaunchSettings:
    """Options of a launcher or of a job: numbers and texts by meaning, each with the option as it was written."""

    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # that the launcher sets for the ranks
    written: list[str] = field(default_factory=list)  # all options
    differences: list[str] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(
        default_factory=list
    )  # that change what the job does, with the reason

    def add(self, meaning: str, value: str, written: str) -> None:
        """Record one option with its values, separated by spaces. Raises UserError if a number is required."""
        self.written.append(written)
        if meaning == "environment":
            # NAME=value, `NAME value` (Hydra's -genv), or Slurm's ALL,NAME=value
            words = re.sub(r"^(\w+) (?=\S+$)", r"\1=", value).split(",")
            self.environment |= dict(word.split("=", 1) for word in words if "=" in word)
            self.differences.append(f"{written}: {NOTES[meaning]}")
            return
        plain = meaning in TEXTS or meaning in REASONS
        found = (
            PARSERS[meaning](value, written)
            if meaning in PARSERS
            else [(meaning, value if plain else parse_count(value, written))]
        )
        for name, each in found:
            if name in REASONS:
                self.lost.append((written, REASONS[name]))
            else:
                self.values[name] = each, written

    def merged(self, inner: "LaunchSettings") -> "LaunchSettings":
        """Return the settings of this job with the settings of the launcher inside it, which take precedence."""
        pairs = [(getattr(self, each.name), getattr(inner, each.name)) for each in fields(self)]
        return LaunchSettings(*(one | two if isinstance(one, dict) else one + two for one, two in pairs))

    def get(self, meaning: str, default: int = 0) -> Any:
        """Return a value, or `default` if no option has this meaning."""
        return self.values.get(meaning, (default, ""))[0]

    def source(self, *meanings: str) -> str:
        """Return the options of the meanings as they were written."""
        return ", ".join(dict.fromkeys(self.values[each][1] for each in meanings if each in self.values))

    @property
    def nodes(self) -> int:
        """Number of nodes; 0 if it is not given."""
        per_node = self.get("ranks_per_node")
        divided = -(-self.get("ranks") // per_node) if per_node else 0
        return int(self.get("nodes") or self.get("hosts") or divided)

    @property
    def resource_sets(self) -> int:
        """Number of resource sets of jsrun; 0 if the options do not state it."""
        return int(self.get("resource_sets") or self.get("nodes") * self.get("sets_per_node"))

    @property
    def ranks(self) -> tuple[int, str] | None:
        """Number of ranks that the options state, and these options; None if they state none."""
        if sets := self.resource_sets:
            first = ["resource_sets"] if "resource_sets" in self.values else ["nodes", "sets_per_node"]
            return sets * self.get("ranks_per_set", 1), self.source(*first, "ranks_per_set")
        pair = ("nodes", "ranks_per_node")
        product = self.get(pair[0]) * self.get(pair[1]), self.source(*pair)
        return self.values.get("ranks") or self.values.get("slots") or (product if product[0] else None)


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
