"""Ranks, threads, GPUs and memory of a training, computed from the options of its launch.

Options of launchers and of the commands that submit jobs are tables: launcher -> option -> meaning.

Meanings with a number or text that experiments can use:
    ranks, ranks_per_node, nodes, threads (per rank), resource_sets, sets_per_node, ranks_per_set,
    threads_per_set, gpus_per_set,
    gpus (of all ranks), gpus_per_node, gpus_per_rank, gres, lsf_gpu, hosts, hostfile, account, partition,
    slurm_time, lsf_time, memory_per_node, memory_per_cpu, lsf_span,
    wrap (the command of a job).
Meanings without a key:
    placement: the profile decides it; output: nnlo has its own files; environment: ranks inherit it;
    nothing: no effect on the training; directory: the working directory; site: belongs into the profile;
    lost: part of the job's meaning that an experiment does not express.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from nnlo_lib.compat.importers.options import (
    environment_variables,
    host_slots,
    hostfile_slots,
    lsf_minutes,
    parse_count,
    size_mb,
    slurm_minutes,
)


@dataclass(frozen=True)
class LauncherOption:
    """Meaning of one option, and the number of its values."""

    meaning: str
    value_count: int


def _options(**names: str) -> dict[str, LauncherOption]:
    """Return the options of a launcher by name, from `meaning="name name:value_count ..."`."""
    table = {}
    for meaning, text in names.items():
        for word in text.split():
            name, _, count = word.partition(":")
            table[name] = LauncherOption(meaning, int(count or 1))
    return table


# Open MPI and Hydra (MPICH, Intel MPI) install commands of the same names, so that one table serves both.
MPI = _options(
    ranks="n np c",
    ranks_per_node="N npernode ppn perhost",
    hosts="H host hosts",
    hostfile="hostfile machinefile f machine default-hostfile",
    environment="x genv:2 env:2 genvlist envlist genvall:0 genvnone:0 envall:0 envnone:0 usize hostname-propagation:0",
    directory="wdir wd",
    placement="map-by rank-by bind-to cpus-per-proc cpus-per-rank pernode:0 bynode:0 byslot:0 bycore:0 "
    "bind-to-core:0 bind-to-socket:0 bind-to-none:0 nooversubscribe:0 npersocket rankfile rf cpu-set cpu-list "
    "binding membind order-nodes nolocal:0 slot-list ranks-on-same-node:0 oversubscribe:0 use-hwthread-cpus:0",
    output="tag-output:0 timestamp-output:0 output-filename output report-bindings:0 prepend-rank:0 l:0 v:0 verbose:0 q:0 "
    "quiet:0 print-all-exitcodes:0 outfile-pattern errfile-pattern merge-stderr-to-stdout:0 xterm V:0 display-map:0 "
    "display-allocation:0 display stdin s",
    nothing="mca:2 gmca:2 prtemca:2 pmixmca:2 allow-run-as-root:0 prefix bootstrap launcher iface rmk launcher-exec "
    "enable-recovery:0 disable-recovery:0 timeout ckpoint-interval disable-auto-cleanup:0 demux topolib check_mpi:0 tune am "
    "path personality pmi_port pmi-port:0 localroot:0 localonly:0 bootstrap-exec nopm:0 noprefix:0 ssh:0",
)  # fmt: skip
SLURM = {
    **_options(
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
    ),
    **_options(
        environment="export export-file",
        directory="D chdir",
        placement="m distribution cpu-bind cpu_bind mem-bind mem_bind gpu-bind ntasks-per-core ntasks-per-socket "
        "ntasks-per-gpu cores-per-socket sockets-per-node threads-per-core hint exclusive:0 O:0 overcommit:0 "
        "s:0 oversubscribe:0 share:0 contiguous:0 overlap:0 exact:0 spread-job:0 use-min-nodes:0 accel-bind B "
        "extra-node-info S core-spec gpu-freq cpu-freq",
        output="o output e error J job-name l:0 label:0 u:0 unbuffered:0 v:0 verbose:0 Q:0 quiet:0 open-mode comment "
        "i input mail-type mail-user parsable:0 slurmd-debug",
        nothing="mpi K kill-on-bad-exit:0 no-kill:0 k:0 requeue:0 no-requeue:0 signal W wait I immediate:0 propagate pty:0 "
        "get-user-env:0 jobid profile acctg-freq export-env no-shell:0 wait-all-nodes ignore-pbs:0 test-only:0 Z:0",
        site="q qos C constraint reservation w nodelist x exclude L licenses M clusters nice priority switches tmp bb "
        "bbf cluster-constraint partition-feature mem-per-gpu cpus-per-gpu container-image container-mounts",
        lost="a array d dependency b begin deadline multi-prog:0 het-group pack-group",
    ),
}  # fmt: skip
LSF = _options(
    ranks="n",
    nodes="nnodes",
    account="P",
    partition="q",
    lsf_time="W",
    lsf_span="R",
    lsf_gpu="gpu",
    environment="env",
    directory="cwd",
    placement="x:0 alloc_flags cn_cu csm core_isolation",
    output="J o e oo eo N:0 B:0 u I:0 Is:0 Ip:0 K:0 i jd notify",
    nothing="r:0 rn:0 L step_cgroup stage sla_x",
    site="m G U app sla M v C D F S T Lp a g hostfile hl:0 sp network",
    lost="w b t E Ep wt wa ti",
)
JSRUN = _options(
    ranks="p np",
    resource_sets="n nrs",
    ranks_per_set="a tasks_per_rs",
    threads_per_set="c cpu_per_rs",
    gpus_per_set="g gpu_per_rs",
    sets_per_node="r rs_per_host",
    placement="K rs_per_socket d launch_distribution b bind l latency_priority m memory_per_rs X exit_on_error "
    "L use_resources U use_resources_file f appfile",
    environment="E env F env_eval D env_no_propagate:0",
    directory="h chdir",
    output="o stdio_stdout e stdio_mode k stdio_stderr t stdio_input progress",
    nothing="M smpiargs i:0 immediate:0 P pre_post_exec smt allocate_only:0",
)
APRUN = _options(
    ranks="n pes",
    ranks_per_node="N pes-per-node",
    threads="d cpus-per-pe",
    environment="e environment-override",
    placement="S sn sl cc cpu-binding cpu-binding-file ss:0 j cpus-per-cu F access-mode L node-list r specialized-cpus "
    "E exclude-node-list p-governor m memory-per-pe R relaunch",
    nothing="b:0 bypass-app-transfer:0 q:0 quiet:0 t cpu-time-limit D debug a architecture p protection-domain P pipes T:0",
    directory="wdir",
    lost="B:0 batch-args:0",
)
HOROVOD = _options(
    ranks="np num-proc",
    placement="H hosts hostfile p ssh-port i ssh-identity-file network-interfaces binding-args",
    output="verbose:0 output-filename prefix-output-with-timestamp:0",
    nothing="gloo:0 mpi:0 jsrun:0 start-timeout disable-cache:0 fusion-threshold-mb cycle-time-ms cache-capacity "
    "mpi-args autotune:0 timeline-filename no-stall-check:0 config-file mpi-threads-disable:0 gloo-timeout-seconds",
    site="min-np max-np slots host-discovery-script",
)
IBRUN = _options(ranks="n np", placement="o", nothing="v:0 m")
LAUNCHERS: dict[str, dict[str, LauncherOption]] = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpirun_rsh", "mpiexec.mpich", "mpirun.mpich",
                     "mpirun.openmpi", "mpiexec.openmpi"), MPI),
    "srun": SLURM,
    "jsrun": JSRUN,
    "aprun": APRUN,
    "ibrun": IBRUN,
    "horovodrun": HOROVOD,
}  # fmt: skip
# Commands and headers that request the job in which a launcher runs.
SUBMITTERS: dict[str, dict[str, LauncherOption]] = {
    "sbatch": {**SLURM, "wrap": LauncherOption("wrap", 1)},
    "salloc": SLURM,
    "bsub": LSF,
}
# Launchers whose short options may have their value attached, as in -n4; the others write -np, -ppn with one hyphen.
WITH_ATTACHED_VALUES = {"srun", "sbatch", "salloc", "jsrun", "aprun"}
NOTES = {
    "placement": "the Snakemake profile (profiles/) and the `resources` section determine the placement of ranks",
    "output": "nnlo writes logs to the run folder",
    "environment": "the ranks inherit the environment of nnlo; set the variable before you start nnlo",
    "nothing": "no effect on the training",
    "directory": "relative paths of the command belong to this folder; run nnlo there",
}
REASONS = {
    "site": "it is an option of your site; add it to slurm_extra or lsf_extra of the Snakemake profile",
    "lost": "an experiment describes one training; repeat, delay or order trainings with Snakemake",
}
NUMBERS = {
    "ranks", "ranks_per_node", "nodes", "threads", "resource_sets", "ranks_per_set", "threads_per_set", "gpus_per_set",
    "sets_per_node", "gpus_per_rank", "gpus_per_node", "gpus",
}  # fmt: skip
# Parsers of other values, and the meanings of the numbers that they return.
PARSERS: dict[str, tuple[str, Callable[[str, str], int]]] = {
    "slurm_time": ("runtime", slurm_minutes), "lsf_time": ("runtime", lsf_minutes),
    "memory_per_node": ("memory_per_node", size_mb), "memory_per_cpu": ("memory_per_cpu", size_mb),
}  # fmt: skip


@dataclass
class LaunchSettings:
    """Options of a launcher or of a job, by meaning.

    Attributes:
        numbers: numbers by meaning.
        texts: other values by meaning, such as `partition`.
        sources: options as they were written, by meaning.
        environment: variables that the launcher sets for the ranks.
        written: all options as they were written.
        remarks: options that affect only the placement of processes, or nothing.
        untranslated: options without an equivalent, with the reason.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untranslated: list[tuple[str, str]] = field(default_factory=list)

    def add(self, meaning: str, value: str, written: str) -> None:
        """Record one option.

        Args:
            meaning: one of those that the docstring of this module lists.
            value: values of the option, separated by spaces; empty for a flag.
            written: the option as it was written, with its value.

        Raises:
            UserError: if a number is required and the value is none.
        """
        self.written.append(written)
        if meaning == "environment":
            self.environment |= environment_variables(value)
        if meaning in NOTES:
            self.remarks.append(f"{written}: {NOTES[meaning]}")
        elif meaning in REASONS:
            self.untranslated.append((written, REASONS[meaning]))
        elif meaning in NUMBERS:
            self._set(meaning, parse_count(value, written), written)
        elif meaning in PARSERS:
            number, parse = PARSERS[meaning]
            self._set(number, parse(value, written), written)
        else:
            getattr(self, f"_add_{meaning}", partial(self._add_text, meaning))(value, written)

    def merged(self, inner: "LaunchSettings") -> "LaunchSettings":
        """Return the settings of this job with the settings of the launcher inside it, which take precedence."""
        return LaunchSettings(
            {**self.numbers, **inner.numbers},
            {**self.texts, **inner.texts},
            {**self.sources, **inner.sources},
            {**self.environment, **inner.environment},
            [*self.written, *inner.written],
            [*self.remarks, *inner.remarks],
            [*self.untranslated, *inner.untranslated],
        )

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
                self.untranslated.append((written, REASONS["site"]))

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
            self.untranslated.append((written, REASONS["site"]))

    def _add_hosts(self, value: str, written: str) -> None:
        self._add_slots(host_slots(value), written)

    def _add_hostfile(self, value: str, written: str) -> None:
        if Path(value).is_file():
            self._add_slots(hostfile_slots(Path(value)), written)
        else:
            self._add_text("unknown_hosts", value, written)

    def _add_slots(self, hosts: dict[str, str], written: str) -> None:
        self._set("slots", sum(parse_count(slots, written) for slots in hosts.values()), written)
        if len(hosts) > 1:
            self._set("hosts", len(hosts), written)


@dataclass(frozen=True)
class RankLayout:
    """Ranks of a training and their share of a machine, computed from the options of its launch.

    Attributes:
        launcher: name of the launcher, or an empty string if the command starts one process itself.
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
