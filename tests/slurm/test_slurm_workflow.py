"""The real workflow on a real Slurm: `snakemake --profile slurm` at the root of a clone."""

import csv
import json
import re
from pathlib import Path

import pytest
from helpers.repository_copy import Checkout
from helpers.slurm_cluster import Slurm
from helpers.slurm_runs import edit, finish, start

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _nodes_are_free(slurm: Slurm) -> None:
    """Wait until the jobs of other tests have ended."""
    slurm.wait("all nodes are idle", slurm.idle, seconds=120)


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


def test_tfrecords_are_converted_by_independent_jobs(
    slurm: Slurm, checkout: Checkout, shared_data: Path
) -> None:
    source = str(shared_data / "imagenet_tfrecord")
    edit(checkout, "shards", data={"dataset": "imagenet", "source": source, "format": "npz"})
    finish(slurm, checkout, start(slurm, checkout, "stores", "--configfile", "shards.yaml"), seconds=300)
    (manifest,) = checkout.folder.glob("data/imagenet/npz-*/manifest.json")
    splits = json.loads(manifest.read_text())["splits"]
    assert {name: part["samples"] for name, part in splits.items()} == {"train": 64, "test": 16}
    said = (checkout.folder / "snakemake.log").read_text()
    jobs = re.findall(r"submitted with SLURM jobid (\d+) \(log: \S*convert_shard", said)
    assert len(jobs) == 5, said
    states = slurm.run("sacct", "--noheader", "--allocations", "--format=State", f"--jobs={','.join(jobs)}")
    assert states.split() == ["COMPLETED"] * 5
