"""`nnlo chaos` shows that a training recovers exactly from random faults, and detects an inexact resume."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers.repository_copy import environment
from helpers.training_process import training

from nnlo_lib.checkpoint import rank_file as parts
from nnlo_lib.checkpoint.checkpoint_folder import checkpoint_folder_name, checkpoint_numbers
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config import Experiment
from nnlo_lib.reliability.chaos import campaign as storm
from nnlo_lib.reliability.chaos.fault_sampler import ACTION_WEIGHTS, DISK_FAULT_FAILPOINTS, sample_fault
from nnlo_lib.reliability.chaos.report import ACTION_LABELS
from nnlo_lib.reliability.chaos.run_twice import run_twice
from nnlo_lib.workflow.single_run import prepare_task

FAULTS, SEED = 8, 240  # this seed draws each kind of fault
SMALL = {"model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}}}
PLACES = Counter(
    {"training.step": 500, "exchange.gather": 100, **dict.fromkeys(DISK_FAULT_FAILPOINTS["truncate"], 50)}
)


def nnlo_chaos(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `nnlo chaos` on the file t.yaml of `folder`."""
    command = [str(Path(sys.executable).with_name("nnlo")), "chaos", "t.yaml", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.slow
def test_a_training_comes_back_bit_for_bit(tmp_path):
    training(tmp_path, **SMALL, train={"epochs": 12})
    done = nnlo_chaos(tmp_path, "--faults", str(FAULTS), "--seed", str(SEED))
    assert done.returncode == 0, done.stdout + done.stderr
    table = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert table.keys() >= {f"  {name}" for name in ACTION_LABELS.values()}
    assert table["  faults"] == str(FAULTS)
    assert int(table["  attempts"]) > FAULTS / 2
    assert "bit for bit" in done.stdout
    assert "exactly once" in done.stdout


@pytest.mark.processes
def test_it_needs_a_fault(tmp_path):
    training(tmp_path, **SMALL)
    done = nnlo_chaos(tmp_path, "--faults", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nnlo: error: --faults: must be at least 1, not 0\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        ("theta", "FAILED  differs from the undisturbed training: model.safetensors, theta of rank 0"),
        ("optimizer.momentum_buffer", "FAILED  differs from the undisturbed training"),
        ("ledger", "FAILED  ledger: epoch"),
    ],
)
def test_a_resume_that_is_not_exact_shows(tmp_path, monkeypatch, capfd, tensor, told):
    def attempt_and_tamper(task, launcher, faults, patience):
        status = attempt(task, launcher, faults, patience)
        if faults:
            tamper(task.state / "checkpoints", tensor)
        return status

    attempt = storm.run_faulty_attempt
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storm, "run_faulty_attempt", attempt_and_tamper)
    experiment = yaml.safe_load((training(tmp_path, **SMALL).folder / "t.yaml").read_text())
    experiment["parallel"]["transport"] = "simulated"
    varied = Experiment.model_validate(experiment)
    tasks = [
        prepare_task(varied, "allreduce", varied.seeds[0], None, title) for title in ("undisturbed", "chaos")
    ]
    assert run_twice(*tasks, "mpiexec", 3, 1) == 1
    assert told in capfd.readouterr().out


def tamper(checkpoints: Path, tensor: str) -> None:
    """Change a number in the newest checkpoint of all ranks, with matching checksums."""
    folder = checkpoints / checkpoint_folder_name(checkpoint_numbers(checkpoints)[-1])
    manifest = CheckpointManifest.read(folder)
    sums = {parts.rank_file_name(rank): changed(folder, rank, tensor) for rank in range(manifest.ranks)}
    replace(manifest, sha256=sums).write(folder)


def changed(folder: Path, rank: int, tensor: str) -> str:
    """Change a number in the file of one rank; return the file's new checksum."""
    saved = parts.read_rank_file(folder, rank)
    saved.tensors[tensor][0] += 1
    return parts.write_rank_file(folder, rank, saved).sha256


def test_draws_are_a_function_of_the_seed():
    drawn = [[sample_fault(seed, number, [PLACES] * 3, 0.1) for number in range(20)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_every_kind_strikes_every_rank_within_its_share():
    share = 0.1
    drawn = [sample_fault(0, number, [PLACES] * 3, share) for number in range(400)]
    assert {fault.action for fault in drawn} == ACTION_WEIGHTS.keys()
    assert {fault.rank for fault in drawn} == {0, 1, 2}
    for fault in drawn:
        assert 1 <= fault.count <= share * PLACES[fault.place]
        assert fault.place in DISK_FAULT_FAILPOINTS.get(fault.action, PLACES)
        assert (fault.within is None) == (fault.action in DISK_FAULT_FAILPOINTS)


def test_no_disk_fails_where_nothing_is_written():
    assert (
        not {sample_fault(0, number, [PLACES], 0).action for number in range(100)}
        & DISK_FAULT_FAILPOINTS.keys()
    )
