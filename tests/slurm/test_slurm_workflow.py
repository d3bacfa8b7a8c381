"""The real workflow on a real Slurm: `snakemake --profile slurm` at the root of a clone."""

import csv
import json
import re
from pathlib import Path

import pytest
from helpers.repository_copy import Checkout, copy_checkout
from helpers.slurm_cluster import Slurm
from helpers.slurm_runs import edit, finish, start

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _nodes_are_free(slurm: Slurm) -> None:
    """Wait until the jobs of other tests have ended."""
    slurm.wait("all nodes are idle", slurm.idle)


def test_the_default_experiment_on_two_nodes(slurm: Slurm, checkout: Checkout) -> None:
    edit(checkout, "cluster", seeds=[1, 2], resources={"nodes": 2, "mem_mb": 1000, "runtime": 10})
    finish(slurm, checkout, start(slurm, checkout, "--configfile", "cluster.yaml"), seconds=600)
    results = checkout.folder / "results/cluster"
    with (results / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["seed"]) for row in rows] == [
        (run, seed) for run in ("allreduce", "downpour") for seed in "12"
    ]
    assert min(float(row["accuracy"]) for row in rows) >= 0.96
    assert (results / "report.html").stat().st_size > 10_000
    where = slurm.run(
        "sacct", "--allusers", "--noheader", "--format=JobID,NNodes,State", "--starttime=now-1hour"
    )
    steps = [line.split() for line in where.splitlines() if ".0" in line.split()[0]]
    assert sum(nodes == "2" and state == "COMPLETED" for _, nodes, state in steps) >= 4, where


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


def test_a_clone_and_an_experiment_with_spaces_and_quotes_in_their_names(
    slurm: Slurm, tmp_path: Path
) -> None:
    checkout = copy_checkout(tmp_path / "a b'c;é")
    edit(checkout, "cluster", seeds=[1], resources={"mem_mb": 1000, "runtime": 10})
    file = (checkout.folder / "cluster.yaml").rename(checkout.folder / "my 'own' (1).yaml")
    finish(slurm, checkout, start(slurm, checkout, "--configfile", file.name), seconds=600)
    assert (checkout.folder / "results/cluster/report.html").stat().st_size > 10_000


def test_a_folder_that_the_submission_would_change_is_refused(slurm: Slurm, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "a $(touch ran) b")
    edit(checkout, "cluster", seeds=[1], resources={"mem_mb": 1000, "runtime": 10})
    process = start(slurm, checkout, "--configfile", "cluster.yaml")
    assert process.wait(300) == 1
    said = (checkout.folder / "snakemake.log").read_text()
    assert "cannot use a working folder with '$' in its path" in said
    assert "Traceback" not in said
    assert list(tmp_path.rglob("ran")) == []
