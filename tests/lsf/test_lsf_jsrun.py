"""`nnlo run --launcher jsrun` with the stand-in for jsrun: the ranks train in their resource sets."""

import json
from pathlib import Path

import pytest
from helpers.lsf_cluster import STANDIN
from helpers.training_process import training


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_training_by_jsrun_records_the_cores_of_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSRUN_CALLS", str(tmp_path / "calls"))
    run = training(tmp_path, parallel={"ranks": 2}, train={"epochs": 1})
    run.finish("--launcher", f"{STANDIN}/jsrun")
    assert json.loads((tmp_path / "calls").read_text())["nrs"] == 2
    summary = json.loads((run.job / "summary.json").read_text())
    (host,) = summary["hardware"].values()
    assert summary["ranks"] == 2
    assert host["cores_per_rank"] == [host["cores_available"]]  # mpiexec of the stand-in binds to no core
