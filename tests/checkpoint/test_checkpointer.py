"""Writing, retention, loading and refusal of checkpoints."""

import errno
import itertools
import json
import os
import pickle
import re
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from nnlo_lib.checkpoint import commit
from nnlo_lib.checkpoint import rank_file as parts
from nnlo_lib.checkpoint.checkpoint_manifest import (
    CHECKPOINT_VERSION,
    CheckpointManifest,
    checkpoint_numbers,
    next_checkpoint_number,
    refuse_other_formats,
)
from nnlo_lib.checkpoint.checkpointer import MAX_SNAPSHOTS, Checkpointer, CheckpointPosition, HostSnapshot
from nnlo_lib.checkpoint.commit import SaveInterval, checkpoints_to_keep
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.training_records import RunLog

RANKS = 3
CODE = "0.1.0 (0123456789ab)"
TABLES = {"history": [{"epoch": 1, "loss": 0.5}]}


def together(folder, work, ranks=RANKS, key="key", patience=200, **settings):
    """Run `work` on simulated ranks, a function of the rank and its checkpointer; return the result of each rank."""

    def one(comm):
        journal = RunLog(folder, enabled=comm.rank == 0)
        config = CheckpointConfig.model_validate(settings)
        return work(
            comm.rank, Checkpointer(folder / "checkpoints", key, CODE, config, comm, journal, patience)
        )

    return SimulatedWorld(ranks, SimulationConfig(), 0).run(one)


def saved(rank, step):
    return RankState({"theta": torch.arange(4) + 10 * step + rank, "one": torch.tensor(step)}, {"step": step})


def save(*steps, load=True, epoch=None):
    """Return a function that loads the newest checkpoint and saves one at each of `steps`."""

    def work(rank, checkpoints):
        if load:
            checkpoints.load(epochs=9)
        for step in steps:
            position = CheckpointPosition(
                step if epoch is None else epoch, step, {"val_loss": abs(step - 3.0)}
            )
            checkpoints.save(saved(rank, step), position, TABLES)
        return checkpoints.wait_until_saved()

    return work


def load(rank, checkpoints):
    """Return the state from which a rank resumes, or None without a checkpoint."""
    found = checkpoints.load(epochs=9)
    return None if found is None else found.read_rank_state(rank)


def steps(folder, ranks=RANKS):
    """Return the step from which each rank resumes."""
    return [state and state.progress["step"] for state in together(folder, load, ranks)]


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.fixture
def two(tmp_path):
    """Return a run folder with two checkpoints."""
    assert all(together(tmp_path, save(1, 2)))
    return tmp_path


# Writing


def test_the_newest_comes_back_to_each_rank_and_old_ones_are_removed(tmp_path):
    assert all(together(tmp_path, save(1, 2, 3)))
    for rank, (tensors, progress, _) in enumerate(together(tmp_path, load)):
        expected = saved(rank, 3)
        assert progress == expected.progress
        assert all(torch.equal(tensors[name], expected.tensors[name]) for name in expected.tensors)
    assert names(tmp_path) == ["00000002", "00000003"]
    folder = tmp_path / "checkpoints/00000003"
    files = {path.name: path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json"}
    assert set(files) == {*(f"rank-{rank}.safetensors" for rank in range(RANKS)), "tables.json"}
    manifest = CheckpointManifest.read(folder)
    assert (manifest.bytes, manifest.ranks, manifest.step) == (sum(files.values()), RANKS, 3)


def common(rank, step, differs=False):
    """Return the state of a rank whose `theta` is common, or, if it `differs`, only called so."""
    theta = torch.arange(4) + 10 * step + (rank if differs else 0)
    return RankState({"theta": theta, "one": torch.tensor(rank)}, {"step": step}, ("theta",))


def save_common(*differs):
    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        found = []
        for step, each in enumerate(differs, 1):
            checkpoints.save(common(rank, step, each), CheckpointPosition(0, step, {}), TABLES)
            found.append(checkpoints.wait_until_saved())
        return found

    return work


def test_a_common_tensor_is_written_once_and_comes_back_to_each_rank(tmp_path):
    assert together(tmp_path, save_common(False)) == [[True]] * RANKS
    folder = tmp_path / "checkpoints/00000001"
    assert {*load_file(folder / "rank-0.safetensors")} == {"theta", "one"}
    assert {*load_file(folder / "rank-2.safetensors")} == {"one"}
    for rank, (tensors, progress, names) in enumerate(together(tmp_path, load)):
        assert (tensors["theta"].tolist(), int(tensors["one"])) == ([10, 11, 12, 13], rank)
        assert (progress, names) == ({"step": 1}, () if rank == 0 else ("theta",))


def test_common_tensors_that_differ_end_a_checkpoint_and_the_next_has_all(tmp_path, capsys):
    assert together(tmp_path, save_common(False, True, True)) == [[True, False, True]] * RANKS
    assert "theta has other bits on rank 1 than on rank 0" in capsys.readouterr().err
    assert names(tmp_path) == ["00000001", "00000002"]
    loaded = together(tmp_path, load)
    assert [tensors["theta"].tolist() for tensors, *_ in loaded] == [
        [30 + rank, 31 + rank, 32 + rank, 33 + rank] for rank in range(RANKS)
    ]


def test_after_another_failure_common_tensors_are_still_written_once(tmp_path, monkeypatch):
    """A full disk must not make the next checkpoint larger."""
    write, failed = parts.write_rank_file, []

    def full(folder, rank, part):
        if rank == 2 and not failed:
            failed.append(rank)
            raise OSError("No space left on device")
        return write(folder, rank, part)

    monkeypatch.setattr(parts, "write_rank_file", full)
    assert together(tmp_path, save_common(False, False)) == [[False, True]] * RANKS
    (folder,) = (tmp_path / "checkpoints").iterdir()
    assert {*load_file(folder / "rank-1.safetensors")} == {"one"}


def test_a_checkpoint_of_format_7_is_read(two):
    for number in (1, 2):
        folder = two / f"checkpoints/0000000{number}"
        replace(CheckpointManifest.read(folder), version=7).write(folder)
    assert steps(two) == [2, 2, 2]


def test_a_checkpoint_has_the_tables_and_the_number_of_its_ranks_for_another_number_of_ranks(two):
    def work(rank, checkpoints):
        found = checkpoints.load(epochs=9)
        return found.ranks, found.epoch, found.step, found.read_tables(), found.read_rank_state(2).progress

    assert together(two, work, ranks=2) == [(RANKS, 2, 2, TABLES, {"step": 2})] * 2
    (two / "checkpoints/00000002/rank-2.safetensors").write_bytes(b"damaged")
    assert steps(two, ranks=2) == [1, 1]


def test_the_copy_is_the_state_at_the_call_of_save(tmp_path):
    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        part = saved(rank, 1)
        checkpoints.save(part, CheckpointPosition(0, 1, {}), {})
        part.tensors["theta"].zero_()
        assert checkpoints.wait_until_saved()
        return checkpoints._snapshot

    # More ranks than snapshots.
    ranks = 2 * MAX_SNAPSHOTS
    assert len(set(together(tmp_path, work, ranks=ranks))) == MAX_SNAPSHOTS
    for rank, (tensors, *_) in enumerate(together(tmp_path, load, ranks=ranks)):
        assert torch.equal(tensors["theta"], saved(rank, 1).tensors["theta"])


def test_a_snapshot_is_reused_after_its_file_is_written():
    snapshot, seen = HostSnapshot(), []
    copy = snapshot.copy_to_host({"theta": torch.zeros(1)})
    snapshot.writer = SimpleNamespace(join=lambda: seen.append(copy["theta"].item()))
    assert snapshot.copy_to_host({"theta": torch.ones(1)})["theta"] is copy["theta"]
    assert (seen, copy["theta"].item()) == ([0.0], 1.0)


def test_saving_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    disk, write = threading.Event(), parts.write_rank_file

    def slowly(*arguments):
        assert disk.wait(250)
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


def test_every_file_is_on_disk_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    """A power failure at any point leaves a folder `unfinished-*` or a complete checkpoint."""
    events, fsync, rename = [], os.fsync, Path.rename

    def flushed(handle):
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def renamed(path, target):
        events.append(f"{path.name} -> {Path(target).name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    together(tmp_path, save(1), ranks=2)
    last = events.index("tables.json")  # before them, the folder of the checkpoints was created
    assert sorted(events[last - 2 : last]) == ["rank-0.safetensors", "rank-1.safetensors"]
    assert events[last:] == [
        "tables.json", "manifest.json", "unfinished-00000001", "unfinished-00000001 -> 00000001", "checkpoints",
    ]  # fmt: skip


def test_an_expired_checkpoint_loses_its_name_before_its_files(two, monkeypatch):
    removed = []
    monkeypatch.setattr(
        "shutil.rmtree", lambda path, **_: removed.append((Path(path).name, len(list(path.iterdir()))))
    )
    together(two, save(3, load=False))
    assert removed == [("unfinished-00000001", RANKS + 2)]


# Writing fails


def test_a_full_disk_of_one_rank_costs_the_new_checkpoint_only(tmp_path, monkeypatch, capsys):
    together(tmp_path, save(1))
    write = parts.write_rank_file

    def full(folder, rank, part):
        if rank == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(folder, rank, part)

    monkeypatch.setattr(parts, "write_rank_file", full)
    assert together(tmp_path, save(2)) == [False] * RANKS
    said = capsys.readouterr().err
    assert "the checkpoint at step 2 could not be written" in said
    assert "rank 2: [Errno 28] No space left on device; the training continues" in said
    assert "the last good checkpoint is 00000001" in said
    assert names(tmp_path) == ["00000001"]
    monkeypatch.undo()
    assert all(together(tmp_path, save(3)))
    assert steps(tmp_path) == [3] * RANKS


def raising(error, condition=lambda *_: True):
    """Return a function that raises `error` if a condition of its arguments holds."""

    def fail(*arguments, **_):
        if condition(*arguments):
            raise error

    return fail


@pytest.mark.parametrize(
    ("module", "function", "error", "sentence"),
    [
        (parts, "write_rank_file", MemoryError("no room for the copy"), "rank 0: MemoryError: no room for the copy"),
        (commit, "write_tables", OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (commit, "remove_receipts", ValueError("odd"), "ValueError: odd"),
        (CheckpointManifest, "write", OSError(122, "Disk quota exceeded"), "[Errno 122] Disk quota exceeded"),
    ],
)  # fmt: skip
def test_a_failure_of_any_part_costs_the_new_checkpoint_only(
    tmp_path, monkeypatch, capsys, module, function, error, sentence
):
    monkeypatch.setattr(module, function, raising(error))
    assert together(tmp_path, save(1)) == [False] * RANKS
    said = capsys.readouterr().err
    assert (
        f"{sentence}; the training continues; no earlier checkpoint exists in {tmp_path}/checkpoints" in said
    )
    assert names(tmp_path) == []


@pytest.mark.parametrize("limit", ["patience", "end of all writers"])
def test_a_rank_without_a_receipt_is_named(tmp_path, monkeypatch, capsys, limit):
    """A rank whose disk is full can write no receipt; a rank that was killed never does."""
    write, written, hours = parts.write_receipt, set(), itertools.count()

    def refuse(folder, rank, receipt):
        if rank != 1:
            write(folder, rank, receipt)
            written.add(rank)
        elif limit != "patience":
            raise OSError(28, "No space left on device")

    def clock():
        """Return a time that passes as soon as all other ranks have written theirs, however long that takes."""
        return 3600.0 * next(hours) if limit == "patience" and written == {0, 2} else 0.0

    monkeypatch.setattr(parts, "write_receipt", refuse)
    monkeypatch.setattr(commit, "time", SimpleNamespace(monotonic=clock))
    assert together(tmp_path, save(1), patience=1000) == [False] * RANKS
    assert (
        "rank 1 did not finish writing its file rank-1.safetensors; the training continues"
        in capsys.readouterr().err
    )
    assert names(tmp_path) == []


def test_an_error_of_one_rank_prevents_the_checkpoint_of_all(tmp_path, capsys):
    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        checkpoints.save(
            saved(rank, 1), CheckpointPosition(0, 1, {}), {}, "rank 2 lost a peer" if rank == 2 else ""
        )
        return checkpoints.wait_until_saved()

    together(tmp_path, work)
    assert "the checkpoint at step 1 could not be written: rank 2 lost a peer;" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_an_aborted_checkpoint_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "write_receipt", lambda *_: None)  # of the ranks that failed

    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        checkpoints.save(saved(rank, 1), CheckpointPosition(0, 1, {}), {})
        checkpoints.abort()

    together(tmp_path, work, patience=3600)
    assert set(names(tmp_path)) <= {"unfinished-00000001"}  # removed at the next start


def test_a_launcher_without_the_lease_names_no_checkpoint(tmp_path, capsys):
    (tmp_path / "lease.json").write_text("mine")

    def work(rank, checkpoints):
        checkpoints.load(epochs=9)
        (tmp_path / "lease.json").write_text("another's")
        checkpoints.save(saved(rank, 1), CheckpointPosition(0, 1, {}), {})
        return checkpoints.wait_until_saved()

    assert together(tmp_path, work, ranks=1) == [False]
    assert "another nnlo process has taken over the lease of this run" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_a_rank_file_is_what_safetensors_writes(tmp_path):
    draws = torch.Generator().manual_seed(0)
    tensors = {
        str(dtype): (100 * torch.rand(3, 5, generator=draws)).to(dtype) for dtype in parts.TYPE_NAMES
    } | {
        "several chunks": torch.rand(parts.CHUNK_BYTES, generator=draws),
        "none": torch.empty(0, 4),
        "one ü": torch.tensor(7),
        "transposed": torch.rand(4, 6, generator=draws).t(),
    }
    progress = {"text": 'a "quoted" ü', "number": 0.1}
    receipt = parts.write_rank_file(tmp_path, 0, RankState(tensors, progress))
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, tmp_path / "theirs", {"progress": json.dumps(progress)})
    ours, theirs = (tmp_path / parts.rank_file_name(0)).read_bytes(), (tmp_path / "theirs").read_bytes()
    assert ours == theirs
    assert receipt == parts.WriteReceipt(parts.hashlib.sha256(theirs).hexdigest(), len(theirs))
    read = parts.read_rank_file(tmp_path, 0)
    assert read.progress == progress
    assert all(
        torch.equal(read.tensors[name].flatten().view(torch.uint8), tensor.flatten().view(torch.uint8))
        for name, tensor in contiguous.items()
    )


def test_a_rank_file_for_which_the_disk_is_too_small_is_an_error_with_its_number(tmp_path):
    (tmp_path / parts.rank_file_name(0)).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        parts.write_rank_file(tmp_path, 0, saved(0, 1))
    assert error.value.errno == errno.ENOSPC


# Loading


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "rank file cut": ("rank-1.safetensors", cut, "damaged: rank-1.safetensors"),
    "bit of a rank file flipped": ("rank-2.safetensors", flip, "damaged: rank-2.safetensors"),
    "rank file missing": ("rank-0.safetensors", Path.unlink, "damaged: rank-0.safetensors"),
    "table changed": ("tables.json", flip, "damaged: tables.json"),
    "manifest missing": ("manifest.json", Path.unlink, "damaged: FileNotFoundError"),
    "manifest empty": ("manifest.json", lambda path: path.write_text(""), "damaged: "),
    "manifest no object": ("manifest.json", lambda path: path.write_text("[]"), "it contains no JSON object"),
    "number of ranks changed": (
        "manifest.json",
        lambda path: path.write_text(path.read_text().replace('"ranks": 3', '"ranks": 2')),
        "manifest.json is damaged: its checksum does not match",
    ),
}


@pytest.mark.parametrize(("name", "damage", "sentence"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(two, capsys, name, damage, sentence):
    (two / "checkpoints/damaged-00000002").mkdir()  # a leftover of the same name
    damage(two / "checkpoints/00000002" / name)
    assert steps(two) == [1] * RANKS
    said = capsys.readouterr().err
    assert re.search(
        rf"warning: the checkpoint {two}/checkpoints/00000002 is skipped: .*{re.escape(sentence)}", said
    )
    assert names(two) == ["00000001", "damaged-00000002"]
    assert all(together(two, save(3)))
    assert names(two) == ["00000001", "00000003", "damaged-00000002"]
    for number in (1, 3):
        cut(two / f"checkpoints/0000000{number}/rank-0.safetensors")
    assert steps(two) == [None] * RANKS


def test_leftovers_of_a_crash_are_removed_and_their_numbers_are_not_used_again(two):
    (two / "checkpoints/unfinished-00000007").mkdir()
    assert next_checkpoint_number(two / "checkpoints") == 8
    assert steps(two) == [2] * RANKS
    assert names(two) == ["00000001", "00000002"]
    for name in ("100000000", "99999999", "damaged-100000001", "notes", "00000003.tmp"):
        (two / "checkpoints" / name).mkdir()
    assert checkpoint_numbers(two / "checkpoints") == [1, 2, 99_999_999, 100_000_000]
    assert next_checkpoint_number(two / "checkpoints") == 100_000_002


def test_a_checkpoint_of_other_settings_is_skipped_and_stays(two, capsys):
    assert together(two, load, key="other") == [None] * RANKS
    assert "00000002 is skipped: the experiment changed since it was written" in capsys.readouterr().err
    assert names(two) == ["00000001", "00000002"]


@pytest.mark.parametrize(
    ("epoch", "metrics", "beyond"),
    [(2, {"val_loss": 1.0}, False), (2, {}, True), (3, {"val_loss": 1.0}, True), (1, {}, False)],
)
def test_a_checkpoint_beyond_the_last_epoch_is_skipped(two, capsys, epoch, metrics, beyond):
    folder = two / "checkpoints/00000002"
    replace(CheckpointManifest.read(folder), epoch=epoch, metrics=metrics).write(folder)
    found = together(two, lambda rank, checkpoints: checkpoints.load(epochs=2))[0]
    assert found.step == (1 if beyond else 2)
    assert ("beyond epoch 2, the last epoch of this training" in capsys.readouterr().err) == beyond


# Formats


def of_another_version(folder):
    replace(CheckpointManifest.read(folder), version=CHECKPOINT_VERSION + 1).write(folder)


def test_a_checkpoint_of_another_format_is_refused_and_stays(tmp_path):
    together(tmp_path, save(1))
    of_another_version(tmp_path / "checkpoints/00000001")
    sentence = (
        f"written by nnlo {CODE}: it has format {CHECKPOINT_VERSION + 1}, but this nnlo reads only the formats 7 and "
        f"{CHECKPOINT_VERSION}; the checkpoint is unchanged. Resume with nnlo {CODE}, or move {tmp_path}"
    )
    for work in (load, save(2)):
        with pytest.raises(UserError, match=re.escape(sentence)):
            together(tmp_path, work)
    with pytest.raises(UserError, match=re.escape(sentence)):
        refuse_other_formats(tmp_path / "checkpoints")
    manifest = tmp_path / "checkpoints/00000001/manifest.json"
    manifest.write_text('{"version": 2}')  # as an early version wrote it, without a checksum
    with pytest.raises(UserError, match="written by nnlo of an early version: it has format 2"):
        together(tmp_path, load)
    assert names(tmp_path) == ["00000001"]


def test_retention_never_removes_another_format_or_a_damaged_checkpoint(two):
    of_another_version(two / "checkpoints/00000001")
    (two / "checkpoints/00000002/manifest.json").write_text("")
    refused = two / "checkpoints/00000001"
    together(two, save(3, 4, 5, load=False))
    assert refused.is_dir()
    assert names(two) == ["00000001", "00000002", "00000004", "00000005"]
    refuse_other_formats(two / "nothing")


def manifest(step, loss):
    return CheckpointManifest("key", CODE, 1, step, step, {} if loss is None else {"val_loss": loss}, 0.0)


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path):
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


# Retention and interval

losses = st.lists(st.none() | st.floats(0, 10), min_size=1, max_size=30)


@given(losses=losses, keep=st.integers(1, 5), every=st.none() | st.integers(1, 5), best=st.booleans())
def test_the_newest_every_nth_and_the_best_are_kept(losses, keep, every, best):
    config = CheckpointConfig(keep=keep, keep_every=every, best="loss" if best else None)
    stay = {}
    for number, loss in enumerate(losses, 1):  # apply the retention rule after each new checkpoint
        stay[number] = manifest(number, loss)
        stay = {name: stay[name] for name in checkpoints_to_keep(config, stay)}
    everything = range(1, len(losses) + 1)
    assert set(stay) >= set(everything[-keep:])
    assert every is None or set(stay) >= {number for number in everything if number % every == 0}
    known = [loss for loss in losses if loss is not None]
    if best and known:
        assert min(known) in [stay[number].metrics.get("val_loss") for number in stay]
    assert len(stay) <= keep + best + (len(losses) // every if every else 0)


def test_when_one_is_due(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(commit.time, "monotonic", lambda: now[0])

    def interval(every, watches=True, **options):
        return SaveInterval(CheckpointConfig(every=every), watches=watches, **options)

    steps, epochs, at_ends = interval("10 steps"), interval("2 epochs"), interval("10 steps", within=False)
    time, simulated = interval("5 min"), interval("5 min", watches=False)
    best = SaveInterval(CheckpointConfig(every="5 min", best="loss"), watches=True)
    assert [steps.is_due(step) for step in (9, 10)] == [False, True]
    assert [at_ends.is_due_after_epoch(1, step) for step in (9, 10)] == [False, True]
    assert not at_ends.is_due(10)
    assert [epochs.is_due_after_epoch(epoch) for epoch in (1, 2)] == [False, True]
    assert not epochs.is_due(10**9)
    assert [time.is_due(1), time.is_due_after_epoch(1), best.is_due_after_epoch(1)] == [False, False, True]
    now[0] += 301
    assert [time.is_due(1), simulated.is_due(1), simulated.is_due_after_epoch(1)] == [True, False, True]
    time.mark_saved(1, 1)
    assert not time.is_due(2)


@pytest.mark.parametrize("every", ["5", "0 min", "5 minutes", "1.5 h", "min", "5min", "0 steps", 300])
def test_other_intervals_are_refused(every):
    sentence = f"every\n.*'{every}' is not an interval; .* s, min, h, steps or epochs, such as 5 min"
    with pytest.raises(ValueError, match=sentence):
        CheckpointConfig(every=every)


def test_best_is_a_measured_metric_with_or_without_its_prefix():
    assert Run(checkpoint=CheckpointConfig(best="val_accuracy")).checkpoint.best == "accuracy"
    with pytest.raises(ValueError, match=r"'val_top5_accuracy' is not measured; .*; or add it to `metrics`"):
        Run(checkpoint=CheckpointConfig(best="top5_accuracy"))


class Malice:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return (open, (self._path, "w"))


def test_loading_executes_nothing(two):
    folder = two / "checkpoints/00000002"
    content = pickle.dumps(Malice(str(two / "executed")))
    (folder / "rank-0.safetensors").write_bytes(content)
    manifest = CheckpointManifest.read(folder)
    digest = {"rank-0.safetensors": parts.hashlib.sha256(content).hexdigest()}
    replace(manifest, sha256=manifest.sha256 | digest).write(folder)
    with pytest.raises(Exception, match="header"):
        together(two, load)
    assert not (two / "executed").exists()
