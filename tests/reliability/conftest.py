"""Finished trainings that all tests of a session share."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers.training_here import CASES, EXPERIMENT, train_here

from nnlo_lib.config import Experiment
from nnlo_lib.core.atomic_file import with_checksum
from nnlo_lib.reliability.verify import verify_runs


@pytest.fixture(scope="session")
def workspace(tmp_path_factory) -> Path:
    """Return a folder with a finished training of each case, interrupted once."""
    folder = tmp_path_factory.mktemp("workspace")
    torch.set_num_threads(1)
    with contextlib.chdir(folder):
        Path("t.yaml").write_text(json.dumps(EXPERIMENT))
        for case in CASES:
            job = train_here(Experiment.model_validate(EXPERIMENT), case, stop_after=5)
            # The recorded version is a clean one, because this checkout may have uncommitted changes.
            summary = json.loads((job / "summary.json").read_text())
            summary["code_version"] = "0.1.0 (0123456789ab)"
            (job / "summary.json").write_text(json.dumps(with_checksum(summary)))
    return folder


@pytest.fixture
def copy(workspace, tmp_path, monkeypatch) -> Path:
    """Copy the workspace, which is then the working directory; tests may modify its files."""
    shutil.copytree(workspace, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


@pytest.fixture
def job(copy) -> Path:
    """Return the folder of the run `allreduce` in the copy."""
    return copy / "results/t/allreduce/seed-0"


@pytest.fixture
def verified(capsys):
    """Return a function that verifies a folder and returns (exit status, lines by status: ok, FAILED, note)."""

    def run(folder, **options):
        status = verify_runs([str(folder)], options.pop("shards", False), **options)
        lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
        return status, {
            kind: [line[1] for line in lines if line[0] == kind] for kind in ("ok", "FAILED", "note")
        }

    return run
