"""Writing, retention, loading and refusal of checkpoints."""

import errno
import itertools
import json
import pickle
import re
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.checkpoint import commit, policy
from nnlo_lib.checkpoint import rank_file as parts
from nnlo_lib.checkpoint.checkpoint_manifest import CHECKPOINT_VERSION, CheckpointManifest
from nnlo_lib.checkpoint.checkpointer import Checkpointer, CheckpointPosition
from nnlo_lib.checkpoint.policy import SaveInterval, checkpoints_to_keep
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.run_log import RunLog

RANKS = 3
CODE = "0.1.0 (0123456789ab)"


def together(folder, work, ranks=RANKS, **settings):
    """Run `work` on simulated ranks; return the result of each rank.

    Args:
        folder: run folder.
        work: function of the rank and its checkpointer.
        ranks: number of ranks.
        **settings: settings of the section `checkpoint`.
    """

    def one(comm):
        journal = RunLog(folder, enabled=comm.rank == 0)
        config = CheckpointConfig.model_validate(settings)
        return work(comm.rank, Checkpointer(folder / "checkpoints", "key", CODE, config, comm, journal, 20))

    return SimulatedWorld(ranks, SimulationConfig(), 0).run(one)


def saved(rank, step):
    return RankState({"theta": torch.arange(4) + 10 * step + rank, "one": torch.tensor(step)}, {"step": step})


def save(steps):
    """Return a function that loads the newest checkpoint and saves one at each of `steps`."""

    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        for step in steps:
            checkpoints.save(
                saved(rank, step), CheckpointPosition(step, step, {"val_loss": abs(step - 3.0)}), {}
            )
        return checkpoints.wait_until_saved()

    return work


def save_unasked(steps):
    """Return a function that saves a checkpoint at each of `steps` without loading one first."""

    def work(rank, checkpoints):
        for step in steps:
            checkpoints.save(saved(rank, step), CheckpointPosition(step, step, {}), {})
        return checkpoints.wait_until_saved()

    return work


def load(rank, checkpoints):
    """Return the state from which a rank resumes, or None without a checkpoint."""
    found = checkpoints.load(epochs=9)
    return None if found is None else found.read_rank_state(rank)


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_the_newest_comes_back_to_each_rank_and_old_ones_go(tmp_path):
    assert all(together(tmp_path, save([1, 2, 3])))
    for rank, (tensors, progress) in enumerate(together(tmp_path, load)):
        wish = saved(rank, 3)
        assert progress == wish.progress
        assert all(torch.equal(tensors[name], wish.tensors[name]) for name in wish.tensors)
    assert names(tmp_path) == ["00000002", "00000003"]
    manifest = json.loads((tmp_path / "checkpoints/00000003/manifest.json").read_text())
    files = [path for path in (tmp_path / "checkpoints/00000003").iterdir() if path.name != "manifest.json"]
    assert manifest["bytes"] == sum(path.stat().st_size for path in files)


def test_the_copy_is_what_the_training_had_and_not_what_it_has(tmp_path):
    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        part = saved(rank, 1)
        checkpoints.save(part, CheckpointPosition(0, 1, {}), {})
        part.tensors["theta"].zero_()
        return checkpoints.wait_until_saved()

    together(tmp_path, work)
    assert torch.equal(together(tmp_path, load)[1].tensors["theta"], saved(1, 1).tensors["theta"])


def test_saving_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    disk, write = threading.Event(), parts.write_rank_file

    def slowly(*arguments):
        assert disk.wait(100)
        return write(*arguments)

    monkeypatch.setattr(parts, "write_rank_file", slowly)

    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        checkpoints.save(saved(rank, 1), CheckpointPosition(0, 1, {}), {})
        under_way = not names(tmp_path) or names(tmp_path) == ["unfinished-00000001"]
        disk.set()
        return under_way, checkpoints.wait_until_saved()

    assert together(tmp_path, work, ranks=1) == [(True, True)]
    assert names(tmp_path) == ["00000001"]


def test_a_rank_whose_disk_is_full_costs_the_new_checkpoint_only(tmp_path, monkeypatch, capsys):
    together(tmp_path, save([1]))
    write = parts.write_rank_file

    def full(folder, rank, part):
        if rank == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(folder, rank, part)

    monkeypatch.setattr(parts, "write_rank_file", full)
    assert together(tmp_path, save([2])) == [False] * RANKS
    said = capsys.readouterr().err
    assert "the checkpoint at step 2 could not be written" in said
    assert "rank 2: [Errno 28] No space left on device; the training continues" in said
    assert "the last good checkpoint is 00000001" in said
    assert names(tmp_path) == ["00000001"]
    monkeypatch.undo()
    assert all(together(tmp_path, save([3])))
    assert together(tmp_path, load)[0].progress == {"step": 3}


def test_whoever_lost_the_lease_names_no_checkpoint(tmp_path, capsys):
    (tmp_path / "lease.json").write_text("mine")

    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        (tmp_path / "lease.json").write_text("another's")
        checkpoints.save(saved(rank, 1), CheckpointPosition(0, 1, {}), {})
        return checkpoints.wait_until_saved()

    assert together(tmp_path, work, ranks=1) == [False]
    assert "another nnlo process has taken over the lease of this run" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_another_version_is_not_thrown_away(tmp_path):
    together(tmp_path, save([1]))
    folder = tmp_path / "checkpoints/00000001"
    replace(CheckpointManifest.read(folder), version=CHECKPOINT_VERSION + 1).write(folder)
    told = f"written by nnlo {CODE}: it has format {CHECKPOINT_VERSION + 1}, but this nnlo reads and writes only format {CHECKPOINT_VERSION};"
    for work in (load, save([2])):
        with pytest.raises(UserError, match=f"{re.escape(told)} .* Resume with nnlo {re.escape(CODE)}, or"):
            together(tmp_path, work)
    assert names(tmp_path) == ["00000001"]


@pytest.mark.parametrize("version", [1, 2])
def test_versions_that_had_no_checksum_are_not_thrown_away(tmp_path, version):
    together(tmp_path, save([1]))
    path = tmp_path / "checkpoints/00000001/manifest.json"
    content = json.loads(path.read_text()) | {"version": version}
    path.write_text(json.dumps({key: content[key] for key in content if key not in ("checksum", "code")}))
    with pytest.raises(
        UserError, match=f"written by an older nnlo, .* has format {version}, .* that wrote it, or"
    ):
        together(tmp_path, load)
    assert names(tmp_path) == ["00000001"]


def test_a_new_run_never_removes_what_another_version_wrote(tmp_path):
    together(tmp_path, save([1]))
    folder = tmp_path / "checkpoints/00000001"
    replace(CheckpointManifest.read(folder), version=CHECKPOINT_VERSION + 1).write(folder)
    together(tmp_path, save_unasked([2, 3, 4, 5]))
    assert names(tmp_path) == ["00000001", "00000004", "00000005"]


@pytest.mark.long
def test_a_flipped_bit_of_a_manifest_is_told_from_anything_that_is_whole(tmp_path):
    manifest(3, 0.25).write(tmp_path)
    path = tmp_path / "manifest.json"
    whole = path.read_bytes()
    said = CheckpointManifest.read(tmp_path)
    for place, bit in itertools.product(range(len(whole)), range(8)):
        content = bytearray(whole)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        with suppress(ValueError):
            assert CheckpointManifest.read(tmp_path) == said  # the bit changed white space only


def test_a_manifest_with_a_flipped_bit_is_skipped_for_the_checkpoint_before(tmp_path):
    together(tmp_path, save([1, 2]))
    path = tmp_path / "checkpoints/00000002/manifest.json"
    path.write_text(path.read_text().replace('"ranks": 3', '"ranks": 2'))
    assert [progress for _, progress in together(tmp_path, load)] == [{"step": 1}] * RANKS
    assert names(tmp_path) == ["00000001", "damaged-00000002"]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_writer_that_fails_for_any_reason_costs_the_new_checkpoint_only(
    tmp_path, monkeypatch, capsys, rank
):
    write = parts.write_rank_file

    def fail(folder, own, part):
        if own == rank:
            raise MemoryError("no room for the copy")
        return write(folder, own, part)

    monkeypatch.setattr(parts, "write_rank_file", fail)
    assert together(tmp_path, save([1])) == [False] * RANKS
    assert (
        f"rank {rank}: MemoryError: no room for the copy; the training continues" in capsys.readouterr().err
    )
    assert names(tmp_path) == []


def test_a_publisher_that_fails_for_any_reason_is_no_success(tmp_path, monkeypatch, capsys):
    find = commit.read_receipt

    def fail(folder, rank):
        if (receipt := find(folder, rank)) and rank == RANKS - 1:  # all rank files exist
            raise ValueError("no receipt")
        return receipt

    monkeypatch.setattr(commit, "read_receipt", fail)
    assert together(tmp_path, save([1])) == [False] * RANKS
    assert "ValueError: no receipt; the training continues" in capsys.readouterr().err
    assert names(tmp_path) == []


class Malice:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return (open, (self._path, "w"))


def test_loading_executes_nothing(tmp_path):
    together(tmp_path, save([1, 2]))
    folder = tmp_path / "checkpoints/00000002"
    content = pickle.dumps(Malice(str(tmp_path / "executed")))
    (folder / "rank-0.safetensors").write_bytes(content)
    manifest = CheckpointManifest.read(folder)
    digest = {"rank-0.safetensors": parts.hashlib.sha256(content).hexdigest()}
    replace(manifest, sha256=manifest.sha256 | digest).write(folder)
    with pytest.raises(Exception, match="header"):
        together(tmp_path, load)
    assert not (tmp_path / "executed").exists()


def manifest(step, loss):
    return CheckpointManifest("key", CODE, 1, step, step, {} if loss is None else {"val_loss": loss}, 0.0)


losses = st.lists(st.none() | st.floats(0, 10), min_size=1, max_size=30)


@given(losses=losses, keep=st.integers(1, 5), every=st.none() | st.integers(1, 5), best=st.booleans())
def test_what_is_kept(losses, keep, every, best):
    wish = CheckpointConfig(keep=keep, keep_every=every, best="loss" if best else None)
    stay = {}
    for number, loss in enumerate(losses, 1):  # apply the retention rule after each new checkpoint
        stay[number] = manifest(number, loss)
        stay = {name: stay[name] for name in checkpoints_to_keep(wish, stay)}
    everything = range(1, len(losses) + 1)
    assert set(stay) >= set(everything[-keep:])
    assert every is None or set(stay) >= {number for number in everything if number % every == 0}
    known = [loss for loss in losses if loss is not None]
    if best and known:
        assert min(known) in [stay[number].metrics.get("val_loss") for number in stay]
    assert len(stay) <= keep + best + (len(losses) // every if every else 0)


def test_when_one_is_due(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(policy.time, "monotonic", lambda: now[0])
    steps, epochs = (
        SaveInterval(CheckpointConfig(every=every), watches=True) for every in ("10 steps", "2 epochs")
    )
    time, simulated = (
        SaveInterval(CheckpointConfig(every="5 min"), watches=watches) for watches in (True, False)
    )
    best = SaveInterval(CheckpointConfig(every="5 min", best="loss"), watches=True)
    assert [steps.is_due(step) for step in (9, 10)] == [False, True]
    assert [epochs.is_due_after_epoch(epoch) for epoch in (1, 2)] == [False, True]
    assert not epochs.is_due(10**9)
    assert [time.is_due(1), time.is_due_after_epoch(1), best.is_due_after_epoch(1)] == [False, False, True]
    now[0] += 301
    assert [time.is_due(1), simulated.is_due(1), simulated.is_due_after_epoch(1)] == [True, False, True]
    time.mark_saved(1, 1)
    assert not time.is_due(2)


@pytest.mark.parametrize("every", ["5", "0 min", "5 minutes", "1.5 h", "min", "5min", "0 steps", 300])
def test_what_is_no_interval(every):
    with pytest.raises(
        ValueError,
        match=f"every\n.*'{every}' is not an interval; .* s, min, h, steps or epochs, such as 5 min",
    ):
        CheckpointConfig(every=every)


def test_best_needs_a_metric_that_is_measured():
    with pytest.raises(ValueError, match="'top5_accuracy' is not measured; add it to `metrics`"):
        Run(checkpoint=CheckpointConfig(best="top5_accuracy"))


def test_best_is_read_as_other_keys_call_it():
    assert Run(checkpoint=CheckpointConfig(best="val_accuracy")).checkpoint.best == "accuracy"
