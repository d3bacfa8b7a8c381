"""Checkpoints of simulated asynchronous trainings do not change messages in flight, nor clocks."""

import json
from dataclasses import replace

import pytest
from helpers.algorithm_trainings import (
    EPOCHS,
    SIMULATED_ASYNCHRONOUS,
    interrupt,
    measured,
    rows,
    task,
)

from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

MACHINES = {
    "unequal": {"speeds": {1: 0.6, 2: 1.7}, "jitter": 0.3},
    "stragglers": {"stragglers": {"ranks": [1, 2], "slowdown": 3, "probability": 0.5}},
    "losses": {"loss": 0.2, "retransmit": 0.003},
    "failures": {"failures": [{"rank": 2, "at": 0.025, "seconds": 0.004}], "mtbf": 0.02, "repair": 0.003},
    "batched": {"compute": "batched", "speeds": {1: 0.6, 2: 1.7}, "jitter": 0.3},
}


def trained(folder, manifest, case, machine, **checkpoint):
    """Return the task of a case, trained to its end."""
    job = task(
        folder, manifest, case, SIMULATED_ASYNCHRONOUS[case] | {"checkpoint": checkpoint}, **MACHINES[machine]
    )
    assert train_simulated(job, StopFlag())
    return job


@pytest.mark.parametrize("case", SIMULATED_ASYNCHRONOUS)
def test_the_interval_of_checkpoints_changes_no_bit(tmp_path, manifest, case):
    often, never = (
        trained(tmp_path / every.replace(" ", ""), manifest, case, "unequal", every=every)
        for every in ("2 steps", "99 h")
    )
    assert often.run.hash == never.run.hash
    assert measured(often) == measured(never)


@pytest.mark.parametrize(
    ("case", "machine"),
    [
        pytest.param(case, machine, marks=() if (number + place) % 4 == 0 else pytest.mark.exhaustive)
        for number, case in enumerate(SIMULATED_ASYNCHRONOUS)
        for place, machine in enumerate(MACHINES)
    ],
)
def test_a_training_resumed_after_an_epoch_has_the_same_bits(tmp_path, manifest, case, machine):
    whole = trained(tmp_path / "whole", manifest, case, machine)
    parts = task(tmp_path / "parts", manifest, case, SIMULATED_ASYNCHRONOUS[case], **MACHINES[machine])
    for epochs in range(1, EPOCHS + 1):
        assert train_simulated(replace(parts, until=epochs), StopFlag())
    for ours, reference in zip(measured(parts), measured(whole), strict=True):
        assert ours == reference


def test_a_stop_within_an_epoch_is_recorded(tmp_path, manifest):
    """Such a stop changes the messages in flight, so that `nnlo verify` must not promise the same bits."""
    whole = trained(tmp_path / "whole", manifest, "adpsgd", "unequal")
    parts = task(tmp_path / "parts", manifest, "adpsgd", {}, **MACHINES["unequal"])
    interrupt(parts)
    paused = [
        json.loads((job.folder / "summary.json").read_text())["paused_within_epoch"] for job in (whole, parts)
    ]
    assert paused == [False, True]


@pytest.mark.parametrize("case", ["gem", "adpsgd"])
def test_the_version_of_the_code_changes_no_clock(tmp_path, manifest, case, monkeypatch):
    """The ranks exchange the version; the length of its text moved the clocks, and messages changed places."""
    histories = []
    for number, version in enumerate(("0.2.0", "0.2.0 (0123456789ab+)")):
        monkeypatch.setattr("nnlo_lib.train.resume.code_version", lambda version=version: version)
        job = task(tmp_path / str(number), manifest, case, SIMULATED_ASYNCHRONOUS[case])
        assert train_simulated(job, StopFlag())
        histories.append([row["seconds"] for row in rows(job)])
        summaries = json.loads((job.folder / "summary.json").read_text())
        histories[-1].append(summaries["seconds"]["total"])
    assert histories[0] == histories[1]
