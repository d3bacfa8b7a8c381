"""The real workflow on a real Slurm: `snakemake --profile slurm`, typed at the root of a clone."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from checkout import Checkout, environment
from cluster import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SNAKEMAKE = Path(sys.executable).with_name("snakemake")


def start(slurm: Slurm, checkout: Checkout, *options: str) -> "subprocess.Popen[str]":
    """Start Snakemake in the clone, its words going to snakemake.log."""
    with (checkout.folder / "snakemake.log").open("w") as log:
        return subprocess.Popen(
            [SNAKEMAKE, "--profile", "slurm", *options], cwd=checkout.folder, stdout=log, stderr=log, text=True,
            env=environment() | slurm.environment,
        )  # fmt: skip


def finish(slurm: Slurm, checkout: Checkout, process: "subprocess.Popen[str]", seconds: float) -> None:
    """Wait for Snakemake to end, and demand success."""
    try:
        slurm.wait("Snakemake is done", lambda: process.poll() is not None, seconds=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, (checkout.folder / "snakemake.log").read_text()


def edit(checkout: Checkout, name: str, **changes: object) -> dict[str, object]:
    """Edit the default experiment as a user would, into another file."""
    settings = yaml.safe_load((checkout.folder / "config/config.yaml").read_text()) | {"name": name} | changes
    (checkout.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return settings


def test_the_default_experiment_on_two_nodes(slurm: Slurm, checkout: Checkout) -> None:
    edit(checkout, "cluster", resources={"nodes": 2, "mem_mb": 1000, "runtime": 10})
    finish(slurm, checkout, start(slurm, checkout, "--configfile", "cluster.yaml"), seconds=600)
    results = checkout.folder / "results/cluster"
    with (results / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["seed"]) for row in rows] == [
        (run, seed) for run in ("allreduce", "downpour") for seed in "123"
    ]
    assert min(float(row["accuracy"]) for row in rows) >= 0.96
    assert (results / "report.html").stat().st_size > 10_000
    where = slurm.run(
        "sacct", "--allusers", "--noheader", "--format=JobID,NNodes,State", "--starttime=now-1hour"
    )
    steps = [line.split() for line in where.splitlines() if ".0" in line.split()[0]]
    assert sum(nodes == "2" and state == "COMPLETED" for _, nodes, state in steps) >= 6, where


def test_a_preempted_training_resumes_and_ends_bit_for_bit_as_if_undisturbed(
    slurm: Slurm, checkout: Checkout
) -> None:
    edit(
        checkout, "preempted", seeds=[1], runs={"allreduce": {"parallel": {"ranks": 2}}},
        train={"epochs": 150, "batch_size": 16}, resources={"nodes": 2, "mem_mb": 1000, "runtime": 10},
    )  # fmt: skip
    job = checkout.folder / "results/preempted/allreduce/seed-1"
    history = job / "state/history.jsonl"
    process = start(slurm, checkout, "--configfile", "preempted.yaml")
    slurm.wait(
        "two epochs are done", lambda: history.exists() and history.read_text().count("\n") >= 2, seconds=180
    )
    slurm.run("sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true")
    finish(slurm, checkout, process, seconds=300)
    assert "resumed at epoch" in (job / "log.txt").read_text()
    assert json.loads((job / "summary.json").read_text())["restarts"] >= 1
    assert undisturbed(checkout) == (job / "model.safetensors").read_bytes()


def undisturbed(checkout: Checkout) -> bytes:
    """Train the same on this machine, without Slurm, and return the weights."""
    nnlo = SNAKEMAKE.with_name("nnlo")
    subprocess.run(
        [nnlo, "run", "preempted.yaml", "--set", "name=undisturbed"], cwd=checkout.folder, env=environment(),
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    return (checkout.folder / "results/undisturbed/allreduce/seed-1/model.safetensors").read_bytes()


def test_tfrecords_are_converted_by_independent_jobs(
    slurm: Slurm, checkout: Checkout, shared_data: Path
) -> None:
    source = str(shared_data / "imagenet_tfrecord")
    edit(checkout, "shards", data={"dataset": "imagenet", "source": source, "format": "npz"})
    target = "data/imagenet/npz/manifest.json"
    finish(slurm, checkout, start(slurm, checkout, target, "--configfile", "shards.yaml"), seconds=300)
    splits = json.loads((checkout.folder / target).read_text())["splits"]
    assert {name: part["samples"] for name, part in splits.items()} == {"train": 64, "test": 16}
    said = (checkout.folder / "snakemake.log").read_text()
    jobs = re.findall(r"submitted with SLURM jobid (\d+) \(log: \S*convert_shard", said)
    assert len(jobs) == 5, said
    states = slurm.run("sacct", "--noheader", "--allocations", "--format=State", f"--jobs={','.join(jobs)}")
    assert states.split() == ["COMPLETED"] * 5
