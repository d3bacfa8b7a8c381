"""`benchmarks/chaos.py` shows that a training recovers exactly from random faults, and detects an inexact resume."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from helpers.nnlo_command import nnlo
from helpers.repository_copy import environment
from helpers.training_here import attempt_here
from helpers.training_process import StopAfter, training

from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folder_name,
    checkpoint_numbers,
)
from nnlo_lib.checkpoint.rank_file import rank_file_name, read_rank_file, write_rank_file
from nnlo_lib.config import Experiment
from nnlo_lib.workflow.single_run import prepare_task

# Not on the path of other tests, which have an `examples` of their own.
with patch.object(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path]):
    chaos = import_module("chaos")

SMALL = {"model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}}}
PLACES = Counter(
    {"training.step": 500, "exchange.gather": 100}
    | dict.fromkeys(chaos.DISK_FAULT_FAILPOINTS["truncate"], 50)
)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_training_recovers_bit_for_bit_from_each_kind_of_fault(tmp_path):
    training(tmp_path, **SMALL, train={"epochs": 12})
    command = [sys.executable, chaos.__file__, "t.yaml", "--faults", "8"]
    done = subprocess.run(
        [*command, "--seed", "240"],  # this seed draws each kind of fault
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    table = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert table.keys() >= {f"  {name}" for name in chaos.ACTION_LABELS.values()}
    assert table["  faults"] == "8"
    assert int(table["  attempts"]) > 4
    assert "bit for bit" in done.stdout
    assert "exactly once" in done.stdout


def test_the_command_of_earlier_versions_is_refused_with_the_remedy(tmp_path):
    done = nnlo("chaos", "t.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'python benchmarks/chaos.py'?" in done.stderr


RESUMES = {
    "exact": (None, "equal the undisturbed training bit for bit"),
    "weights": ("theta", "FAILED  differs from the undisturbed training: model.safetensors, theta of rank 0"),
    "optimizer": ("optimizer.momentum_buffer", "FAILED  differs from the undisturbed training"),
    "ledger": ("ledger", "FAILED  ledger: epoch"),
}


@pytest.mark.parametrize(("tensor", "said"), RESUMES.values(), ids=RESUMES)
def test_a_resume_that_is_not_exact_is_found(tmp_path, monkeypatch, capsys, tensor, said):
    """Each attempt is made in this process; instead of a fault, it stops after 25 steps, and a checkpoint is changed."""

    def attempt(task, launcher, faults, timeout):
        outcome = attempt_here(task, StopAfter(25) if faults else None)
        if faults:
            (task.folder / "struck").write_text("".join(f"{fault.number}\n" for fault in faults))
        if faults and tensor:
            change_newest_checkpoint(task.state / "checkpoints", tensor)
        return outcome.exit_status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chaos, "run_faulty_attempt", attempt)
    monkeypatch.setattr(chaos, "_failpoint_counts", lambda task: [PLACES])
    settings = {"train": {"epochs": 2, "batch_size": 50}, "parallel": {"ranks": 2, "transport": "simulated"}}
    experiment = Experiment.model_validate(
        yaml.safe_load((training(tmp_path, **SMALL, **settings).folder / "t.yaml").read_text())
    )
    tasks = [
        prepare_task(experiment, "allreduce", experiment.seeds[0], None, title) for title in ("calm", "chaos")
    ]
    assert chaos.run_twice(*tasks, "mpiexec", 3, 1) == bool(tensor)
    out = capsys.readouterr().out
    assert said in out
    assert ("FAILED" in out) == bool(tensor)


def change_newest_checkpoint(checkpoints: Path, tensor: str) -> None:
    """Change a number in the newest checkpoint of all ranks, with matching checksums."""
    folder, checksums = checkpoints / checkpoint_folder_name(checkpoint_numbers(checkpoints)[-1]), {}
    manifest = CheckpointManifest.read(folder)
    for rank in range(manifest.ranks):
        saved = read_rank_file(folder, rank)
        saved.tensors[tensor][0] += 1
        (folder / rank_file_name(rank)).unlink()  # the tensors are views of it
        checksums[rank_file_name(rank)] = write_rank_file(folder, rank, saved).sha256
    replace(manifest, sha256=checksums).write(folder)
