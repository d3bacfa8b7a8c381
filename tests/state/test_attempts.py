"""Record of attempts, and its effect on retries and memory of the next attempt."""

import json
import os
import struct
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config import Experiment
from nnlo_lib.launch.attempt_recovery import read_progress
from nnlo_lib.state.attempts import (
    Attempt,
    AttemptStatistics,
    append_attempt,
    attempts_of_result,
    interrupted_attempts,
    read_attempts,
)
from nnlo_lib.state.lease import LeaseOwner
from nnlo_lib.workflow.plan import Plan


def attempt(reason="killed", number=1, start=0, reached=10, saved=5):
    return Attempt(
        number, "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00", 60.0, "here", None, reason,
        "rank 1 was killed", start, reached, saved, 2,
    )  # fmt: skip


def after(*reasons, **changes):
    return [attempt(reason, number, **changes) for number, reason in enumerate(reasons, 1)]


def test_what_is_recorded_is_read_again(tmp_path):
    for each in after("killed", "finished"):
        append_attempt(tmp_path, each)
    assert read_attempts(tmp_path) == after("killed", "finished")
    assert json.loads((tmp_path / "attempts.jsonl").read_text().splitlines()[0])["from"] == 0


def test_a_line_that_a_crash_cut_short_spoils_no_other(tmp_path):
    for each in after("killed", "preempted"):
        append_attempt(tmp_path, each)
    path = tmp_path / "attempts.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    append_attempt(tmp_path, attempt("finished", 2))
    assert [each.reason for each in read_attempts(tmp_path)] == ["killed", "finished"]


def test_how_far_an_attempt_has_come(tmp_path):
    assert (read_attempts(tmp_path), read_progress(tmp_path)) == ([], (0, 0, 0))
    checkpoint = tmp_path / "checkpoints/00000002"
    checkpoint.mkdir(parents=True)
    (checkpoint.parent / "00000003").mkdir()  # incomplete checkpoint without a manifest
    CheckpointManifest("key", "nnlo", ranks=1, epoch=1, step=40, metrics={}, seconds=0.0).write(checkpoint)
    assert read_progress(tmp_path) == (40, 40, 40)
    (tmp_path / "step").write_bytes(struct.pack("<qq", 20, 47))
    assert read_progress(tmp_path) == (20, 47, 40)


def test_seconds_of_what_was_interrupted_since_the_run_last_finished():
    minutes = [
        replace(each, ended=f"2026-01-01T00:0{i}:00+00:00")
        for i, each in enumerate(after("killed", "finished", "preempted", "killed", "finished"))
    ]
    end = datetime(2026, 1, 1, 0, 3, 30, tzinfo=UTC).timestamp()
    numbers = [
        [each.attempt for each in interrupted_attempts(minutes, end + shift)] for shift in (-60, 0, 60)
    ]
    assert numbers == [[3], [3, 4], []]
    assert [each.span for each in minutes[2:4]] == [(end - 150, end - 90), (end - 90, end - 30)]


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """Return the folder of the second of two jobs, and a function that returns the memory of the next attempt at a job."""
    monkeypatch.chdir(tmp_path)
    plan = Plan.of(Experiment.model_validate({"name": "e", "runs": {"r": {"resources": {"mem_mb": 100}}}}))
    state = tmp_path / "results/e/r/seed-1/state"
    state.mkdir(parents=True)
    resources = plan.training_resources.resources["mem_mb"]
    return state, lambda job, attempt: resources(SimpleNamespace(run="r", job=job), attempt)


def test_the_plan_raises_the_memory_of_one_job(memory):
    state, memory_of = memory
    append_attempt(state, attempt("out of memory"))
    assert (memory_of("seed-1", 2), memory_of("seed-0", 2)) == (150, 100)


@pytest.mark.processes
def test_the_plan_counts_a_job_that_the_scheduler_killed_for_its_memory(memory, tmp_path, monkeypatch):
    state, memory_of = memory
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "sacct").write_text("#!/bin/sh\necho '7|7|OUT_OF_MEMORY'\n")
    (tmp_path / "sacct").chmod(0o755)
    replace(LeaseOwner.for_this_process(), scheduler="slurm", job="7").write(state / "lease.json")
    assert memory_of("seed-1", 2) == 150
    assert memory_of("seed-1", 1) == 100  # at attempt 1, Snakemake has not seen this job end


def trained(number, reason, start, reached, training="a"):
    return replace(attempt(reason, number, start, reached, reached), training=training)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        # An interruption counts, also one before the first checkpoint.
        ([trained(1, "preempted", 0, 5), trained(2, "finished", 5, 9)], [1, 2]),
        ([trained(1, "killed", 0, 0), trained(2, "finished", 0, 9)], [1, 2]),
        # A mistake of the user before the first step.
        ([trained(1, "bad input", 0, 0), trained(2, "finished", 0, 9)], [2]),
        ([trained(1, "user code", 0, 0), trained(2, "finished", 0, 9)], [2]),
        (
            [trained(1, "finished", 0, 9), trained(2, "bad input", 9, 9), trained(3, "finished", 9, 18)],
            [1, 3],
        ),
        # A mistake that appears after steps has cost time.
        ([trained(1, "bad input", 0, 3), trained(2, "finished", 0, 9)], [1, 2]),
        # Another training in the same folder, with other settings.
        ([trained(1, "diverged", 0, 7, "b"), trained(2, "finished", 0, 9)], [2]),
        ([trained(1, "finished", 0, 9), trained(2, "killed", 0, 2, "b"), trained(3, "finished", 0, 9)], [3]),
        # Another number of ranks, which trains a finished run again from step 0.
        ([trained(1, "finished", 0, 9), trained(2, "finished", 0, 9)], [2]),
        # Raised epochs, interrupted: the first attempt made the results.
        ([trained(1, "finished", 0, 9), trained(2, "preempted", 9, 12)], [1]),
        # Records of an older version do not name their training.
        ([trained(1, "killed", 0, 5, None), trained(2, "finished", 5, 9)], [1, 2]),
    ],
)
def test_attempts_that_count_for_the_result(found, kept):
    assert [each.attempt for each in attempts_of_result(found)] == kept


def test_raised_epochs_are_no_interruption():
    both = AttemptStatistics([trained(1, "finished", 0, 9), trained(2, "finished", 9, 18)], 100.0)
    assert (both.unfinished_by_reason.total(), both.lost_steps, both.seconds_between_attempts) == (0, 0, 0)


def test_each_recorded_attempt_is_flushed_to_the_disk(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(Path(f"/proc/self/fd/{file}").read_text()))
    for each in after("killed", "finished"):
        append_attempt(tmp_path, each)
        assert flushed[-1:] == [(tmp_path / "attempts.jsonl").read_text()]
