"""Killed ranks, damaged checkpoints and bad input: a clear error, no remaining processes, no partial outputs."""

import json
import os
import signal
import time

import pytest
from helpers.store_folder import store_folder
from helpers.training_process import processes_of, under_way, wait
from helpers.training_process import started as training

from nnlo_lib.train.fault_injection import FaultInjector, FaultPlan, InjectedFault

LONG = {"train": {"epochs": 60}}
DECLARED = ("model.safetensors", "history.csv", "summary.json", "trace.json", "log.txt", "evaluation.json")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("algorithm", "ranks", "victim"),
    [("allreduce", 2, 0), ("allreduce", 2, 1), ("downpour", 3, 0), ("downpour", 3, 1), ("downpour", 3, 2)],
)
def test_a_killed_rank_ends_all_and_is_named(tmp_path, algorithm, ranks, victim):
    run = training(tmp_path, algorithm, ranks, **LONG)
    with under_way(run, 2) as process:
        pid = run.pid(victim)
        started = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=100)
        assert time.monotonic() - started < 100
    assert process.returncode == 1
    assert f"rank {victim} (process {pid} on " in said.splitlines()[-1]
    assert "Traceback" not in said
    wait("nothing is left running", lambda: not processes_of(tmp_path))
    assert not [name for name in DECLARED if (run.job / name).exists()]


@pytest.mark.slow
def test_after_a_kill_the_same_command_ends_bit_for_bit_as_if_nothing_had_been(tmp_path):
    killed, undisturbed = (
        training(tmp_path / name, train={"epochs": 20}) for name in ("killed", "undisturbed")
    )
    with under_way(killed, 5) as process:
        os.kill(killed.pid(1), signal.SIGKILL)
        process.communicate(timeout=100)
    assert "resumed at epoch" in killed.finish()
    undisturbed.finish()
    assert killed.weights == undisturbed.weights
    assert killed.history == undisturbed.history


def damage_byte(folder):
    path = folder / "rank-1.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"ranks": 2', '"ranks": 0'))


DAMAGE = {
    "a flipped bit": damage_byte,
    "a truncated file": lambda folder: os.truncate(folder / "rank-0.safetensors", 100),
    "a missing file": lambda folder: (folder / "rank-1.safetensors").unlink(),
    "a missing manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a flipped bit in a manifest": damage_manifest,
    "half a manifest": lambda folder: os.truncate(folder / "manifest.json", 20),
}


@pytest.mark.processes
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path, damage):
    training(tmp_path, train={"epochs": 3}).finish()
    run = training(tmp_path, train={"epochs": 4})
    checkpoints = sorted((run.job / "state/checkpoints").iterdir())
    assert len(checkpoints) == 2  # the default of `checkpoint.keep`
    damage(checkpoints[-1])
    (run.job / "state/checkpoints/unfinished-00000009").mkdir()
    said = run.finish()
    assert "is skipped" in said
    assert "resumed at epoch 2" in said
    assert [row["epoch"] for row in run.history] == [1, 2, 3, 4]
    assert not (run.job / "state/checkpoints/unfinished-00000009").exists()


@pytest.mark.processes
def test_a_changed_experiment_starts_afresh(tmp_path):
    training(tmp_path, train={"epochs": 2}).finish()
    said = training(tmp_path, train={"epochs": 2, "batch_size": 32}).finish()
    assert "the experiment changed" in said
    assert "resumed" not in said


def model_file(tmp_path, body):
    (tmp_path / "net.py").write_text(f"import torch\n\n\ndef build(shape, classes):\n    {body}\n")
    return {"model": {"name": "net.py:build", "args": {}}}


BAD_MODELS = {
    "raise ValueError('too deep')": "ValueError: too deep",
    "return 42": "returned int; it must return a torch.nn.Module",
    "return torch.nn.Flatten()": "no trainable parameter",
    "import nowhere": "No module named 'nowhere'",
}


@pytest.mark.processes
@pytest.mark.parametrize(("body", "reason"), BAD_MODELS.items())
def test_a_model_that_cannot_be_built(tmp_path, body, reason):
    said = training(tmp_path, **model_file(tmp_path, body)).finish(expect=2)
    assert reason in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.processes
@pytest.mark.parametrize("algorithm", ["allreduce", "downpour"])
def test_a_loss_that_is_not_a_number(tmp_path, algorithm):
    run = training(tmp_path, algorithm, 3, train={"optimizer": {"lr": 1e30}})
    said = run.finish(expect=2)
    assert "the loss became" in said.splitlines()[-1]
    assert "train.optimizer.lr" in said
    assert "Traceback" not in said
    assert not [name for name in DECLARED if (run.job / name).exists()]


@pytest.mark.processes
def test_more_workers_than_samples(tmp_path):
    parallel = {"ranks": 3}
    said = training(tmp_path, parallel=parallel, data={"validation": 0.9995}).finish(expect=2)
    assert "3 ranks for 1 training samples" in said


@pytest.mark.processes
def test_an_unreadable_shard(tmp_path):
    run = training(tmp_path, train={"epochs": 1})
    run.finish()
    shard = next((tmp_path / store_folder()).glob("train-*.h5"))
    os.truncate(shard, 1000)
    said = training(tmp_path, train={"epochs": 2}).finish(expect=2)
    assert shard.name in said
    assert f"rm -f {shard.relative_to(tmp_path)}" in said


@pytest.mark.parametrize("action", ["truncate", "bitflip"])
def test_what_is_struck_is_what_a_rank_wrote_last_and_rank_0_writes_manifests(tmp_path, monkeypatch, action):
    folder = tmp_path / "checkpoints/00000001"
    folder.mkdir(parents=True)
    for age, name in enumerate(("manifest.json", "rank-1.safetensors", "rank-0.safetensors")):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1000 - age, 1000 - age))
    monkeypatch.setattr(FaultInjector, "_kill", lambda self: None)
    for rank, name in ((0, "manifest.json"), (1, "rank-1.safetensors")):
        fault = InjectedFault(7, "checkpoint.published", rank, 1, action)
        FaultInjector(FaultPlan(tmp_path, 0, [fault]), rank, tmp_path).on_failpoint("checkpoint.published")
        assert [path.name for path in folder.iterdir() if path.read_bytes() != bytes(100)] == [name]
        (folder / name).write_bytes(bytes(100))


@pytest.mark.processes
def test_an_unfinished_training_is_set_aside_when_the_experiment_changes(tmp_path):
    small = {
        "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
        "parallel": {"transport": "simulated"},
    }
    run = training(tmp_path, train={"epochs": 2}, **small)
    run.finish()
    record = run.job / "state/attempts.jsonl"
    record.write_text(record.read_text().replace('"finished"', '"killed"'))
    before = run.rows
    said = training(tmp_path, train={"epochs": 2, "batch_size": 32}, **small).finish()
    assert "the earlier training state was moved to results/t/allreduce/seed-0/state/former-1" in said
    assert len(list((run.job / "state/former-1/checkpoints").glob("[0-9]*/manifest.json"))) == 2
    former = (run.job / "state/former-1/history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in former] == before
