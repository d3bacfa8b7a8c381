"""Records of a training: the sample ledger counts the samples of the surviving steps; a printed failure reaches the launcher."""

import os
import sys
from threading import Thread

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.launch.diagnosis import LauncherOutput
from nnlo_lib.state import training_records
from nnlo_lib.state.training_records import (
    MAX_COUNT,
    MAX_EXAMPLES,
    SampleLedger,
    counts_sha256,
    epoch_row,
    print_failure,
)

# an integer: crash and resume with this number of ranks
EVENTS = st.lists(st.one_of(st.just("save"), st.integers(1, 5)), max_size=12)


def total(ledgers):
    """Return the sum over ranks, which rank 0 writes."""
    return np.sum([ledger.counts for ledger in ledgers], axis=0, dtype=np.int64)


def restored(saved, ranks, samples):
    """Return the ledgers of resumed ranks; each restores the saved ledgers with its index modulo `ranks`."""
    ledgers = [SampleLedger(samples) for _ in range(ranks)]
    for rank, ledger in enumerate(ledgers):
        ledger.restore(*saved[rank::ranks])
    return ledgers


def train(order, batch, ranks, events, draw):
    """Assign the batches of an epoch to ranks in any order, with an event before each step; return the ledgers."""
    batches = np.array_split(order, -(-len(order) // batch))
    ledgers, events, step = [SampleLedger(len(order)) for _ in range(ranks)], list(events), 0
    saved, saved_step = [ledger.counts.copy() for ledger in ledgers], 0
    while step < len(batches):
        event = events.pop() if events else None
        if event == "save":
            saved, saved_step = [ledger.counts.copy() for ledger in ledgers], step
        elif event:
            ledgers, step = restored(saved, event, len(order)), saved_step
        ledgers[draw(st.integers(0, len(ledgers) - 1))].mark(batches[step])
        step += 1
    return ledgers


@given(st.integers(1, 80), st.integers(1, 20), st.integers(1, 5), EVENTS, st.data())
def test_no_restart_on_any_number_of_ranks_loses_or_repeats_a_use(samples, batch, ranks, events, data):
    order = np.random.default_rng(samples).permutation(samples)
    counts, once = total(train(order, batch, ranks, events, data.draw)), np.ones(samples, np.uint8)
    assert epoch_row(3, counts, once) == {
        "epoch": 3, "samples": samples, "missed": 0, "repeated": 0, "examples": [], "sha256": counts_sha256(once),
    }  # fmt: skip


@given(uses=st.lists(st.integers(0, 3), min_size=1, max_size=40), data=st.data())
def test_a_row_tells_every_deviation(uses, data):
    counts = np.array(uses)
    expected = np.array(data.draw(st.lists(st.booleans(), min_size=len(uses), max_size=len(uses))))
    told = epoch_row(1, counts, expected)
    assert told["samples"] == sum(uses)
    assert told["missed"] == sum(use < wish for use, wish in zip(uses, expected, strict=True))
    assert told["repeated"] == sum(use > wish for use, wish in zip(uses, expected, strict=True))
    deviating = [place for place, use in enumerate(uses) if use != expected[place]]
    assert told["examples"] == deviating[:MAX_EXAMPLES]
    assert (told["sha256"] == counts_sha256(expected)) == (not deviating)


def test_counts_stop_before_they_would_start_again_at_zero_and_stay_one_array():
    ledger = SampleLedger(2)
    counts = ledger.counts
    for _ in range(MAX_COUNT + 5):
        ledger.mark(np.array([1]))
    assert counts.tolist() == [0, MAX_COUNT]
    ledger.restore(counts, counts)
    assert counts.tolist() == [0, MAX_COUNT]
    ledger.clear()
    assert counts.tolist() == [0, 0]
    ledger.restore()
    assert counts.tolist() == [0, 0]


def test_a_printed_failure_is_found_and_not_shown(capfd):
    print_failure({"rank": 3, "error": "No space left on device\nat step 7"})
    print_failure({"rank": 5, "error": "another"})
    output = LauncherOutput()
    shown = [line for line in capfd.readouterr().err.splitlines() if line and output.parse_line(line)]
    assert shown == []
    assert output.failures == {
        "3": {"rank": 3, "error": "No space left on device\nat step 7"},
        "5": {"rank": 5, "error": "another"},
    }


def test_other_lines_are_output():
    output = LauncherOutput()
    for line in ("epoch 1/3", "nnlo failure: ", "nnlo failure: {torn", 'nnlo failure: ["rank"]'):
        assert output.parse_line(line)
    assert output.failures == {}


def test_the_rank_waits_until_the_line_has_been_read(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stderr, os.fdopen(reading, "rb", buffering=0) as launcher:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(training_records, "READ_TIMEOUT_S", 3600)
        rank = Thread(target=print_failure, args=({"rank": 3, "error": "disk full"},), daemon=True)
        rank.start()
        rank.join(0.2)
        assert rank.is_alive()
        assert b"disk full" in launcher.read(1000)
        rank.join(250)
        assert not rank.is_alive()
