"""Measure the seconds from the end of a Slurm job to the start of the next one: `python benchmarks/job_latency.py [--quick]`.

A chain of jobs, each of which sleeps for a while, runs in an idle queue of the tests' Slurm, with Snakemake's executor `slurm` as
profiles/slurm set it before nnlo-slurm, and with `nnlo-slurm`. Start and end times come from sacct.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import itertools

from helpers.repository_copy import environment
from helpers.slurm_cluster import Slurm, cluster

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
SNAKEFILE = """
rule all:
    input: "{jobs}.txt"
    localrule: True
rule step:
    input: lambda wildcards: [] if wildcards.n == "1" else f"{{int(wildcards.n) - 1}}.txt"
    output: "{{n}}.txt"
    shell: "sleep {seconds}; touch {{output}}"
"""
SETTINGS = {
    "slurm": ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "10"],
    "nnlo-slurm": [],
}


def gaps(slurm: Slurm, folder: Path, executor: str, jobs: int, seconds: float) -> list[float]:
    """Run a chain of jobs and return the seconds between their ends and the next starts.

    Args:
        slurm: the cluster.
        folder: empty folder.
        executor: name of the executor.
        jobs: number of jobs.
        seconds: duration of each job's work.
    """
    folder.mkdir()
    (folder / "Snakefile").write_text(SNAKEFILE.format(jobs=jobs, seconds=seconds))
    since = datetime.now().isoformat(timespec="seconds")
    subprocess.run(
        [SNAKEMAKE, "--executor", executor, "--jobs", "2", "--default-resources", "mem_mb=500", "runtime=5", *SETTINGS[executor]],
        cwd=folder, env=environment() | slurm.environment, check=True, capture_output=True,
    )  # fmt: skip
    rows = slurm.run("sacct", "-X", "-n", "-P", "--format=Start,End", f"--starttime={since}").splitlines()
    times = sorted(tuple(map(datetime.fromisoformat, row.split("|"))) for row in rows)
    return [(after[0] - before[1]).total_seconds() for before, after in itertools.pairwise(times)]


def main() -> None:
    """Print the median, minimum and maximum for each executor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--quick", action="store_true", help="two short jobs")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.seconds = 2, 1
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder, "slurm")) as slurm:
        for executor in SETTINGS:
            found = gaps(slurm, Path(folder, f"chain-{executor}"), executor, options.jobs, options.seconds)
            print(
                f"{executor:<12} median {statistics.median(found):g} s, {min(found):g} to {max(found):g} s, {len(found)} gaps",
                flush=True,
            )


if __name__ == "__main__":
    main()
