"""The progress bar of an epoch, in a training of this process."""

import pytest
from helpers.observed_training import SAMPLES, watched

from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.progress_bar import TERMINAL
from nnlo_lib.train.rank import train_simulated


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_each_epoch(tmp_path, small_store, monkeypatch, capfd, terminal):
    monkeypatch.delenv(TERMINAL, raising=False)
    if terminal:
        monkeypatch.setenv(TERMINAL, "1")
    task = watched(tmp_path / "job", small_store, {}, train={"epochs": 2}, data={"validation": 0.1})
    assert train_simulated(task, StopFlag())
    shown = capfd.readouterr().err
    assert ("epoch 1:" in shown, "epoch 2:" in shown) == (terminal, terminal)
    assert (f"/{SAMPLES * 9 // 10} [" in shown) == terminal
