"""`nnlo run --launcher jsrun` with a script in place of jsrun, whose resource sets tests/launch/test_launcher_command.py has."""

import json
from pathlib import Path

import pytest
from helpers.training_process import training


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_training_by_jsrun_records_the_cores_of_its_ranks(tmp_path: Path) -> None:
    jsrun = tmp_path / "jsrun"
    # -n 2 -a 1 -c 1 -g 0 -b packed:1 PROGRAM
    jsrun.write_text('#!/bin/sh\nshift 10\nexec mpiexec -n 2 "$@"\n')
    jsrun.chmod(0o755)
    run = training(tmp_path, parallel={"ranks": 2}, train={"epochs": 1})
    run.finish("--launcher", str(jsrun))
    summary = json.loads((run.job / "summary.json").read_text())
    (host,) = summary["hardware"].values()
    assert summary["ranks"] == 2
    assert host["cores_per_rank"] == [host["cores_available"]]  # the script binds to no core
