"""Options of the launchers of ranks and of the commands that submit jobs: launcher -> option -> meaning.

Meanings with a number or text that experiments can use:
    ranks, ranks_per_node, nodes, threads (per rank), resource_sets, sets_per_node, ranks_per_set,
    threads_per_set, gpus_per_set,
    gpus (of all ranks), gpus_per_node, gpus_per_rank, gres, lsf_gpu, hosts, hostfile, account, partition,
    slurm_time, lsf_time, memory_per_node, memory_per_cpu, lsf_span.
Meanings without a key:
    placement: the profile decides it; output: nnlo has its own files; environment: ranks inherit it;
    nothing: no effect on the training; directory: the working directory; site: belongs into the profile;
    lost: part of the job's meaning that an experiment does not express.
"""

from dataclasses import dataclass


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
IBRUN = _options(ranks="n np", placement="o", nothing="v:0 m")
SALLOC = {**SLURM, "wrap": LauncherOption("wrap", 1)}
LAUNCHERS: dict[str, dict[str, LauncherOption]] = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpirun_rsh", "mpiexec.mpich", "mpirun.mpich",
                     "mpirun.openmpi", "mpiexec.openmpi"), MPI),
    "srun": SLURM,
    "jsrun": JSRUN,
    "aprun": APRUN,
    "ibrun": IBRUN,
}  # fmt: skip
# Commands and headers that request the job in which a launcher runs.
SUBMITTERS: dict[str, dict[str, LauncherOption]] = {"sbatch": SALLOC, "salloc": SLURM, "bsub": LSF}
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
