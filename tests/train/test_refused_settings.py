"""Settings that the check refuses for downpour train wrongly without the check (test_gan_guarantees.py: settings of GANs)."""

import pytest
from helpers.observed_training import store, watched
from pydantic import ValidationError

from nnlo_lib.algorithms.parameter_server.downpour import Downpour
from nnlo_lib.config import Run, merge_settings
from nnlo_lib.config.rules import combinations
from nnlo_lib.core.errors import DivergedError
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 6, "optimizer": {"name": "sgd", "lr": 0.05}},
    "algorithm": {"name": "downpour"},
    "parallel": {"ranks": 3, "transport": "simulated"},
}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return store(tmp_path_factory.mktemp("store"))


def unchecked(folder, manifest, monkeypatch, changes):
    """Train with settings that the check refuses."""
    given = merge_settings(SETTINGS, changes)
    with pytest.raises(ValidationError):
        Run.model_validate(given)
    monkeypatch.setattr(combinations, "_faults", lambda *_: iter(()))
    assert train_simulated(watched(folder, manifest, {}, **given), StopFlag())


@pytest.mark.parametrize("sync_every", [1, 4])
def test_fp16_diverges_because_the_server_applies_scaled_gradients(
    tmp_path, manifest, monkeypatch, sync_every
):
    changes = {"algorithm": {"sync_every": sync_every}}
    plain = merge_settings(SETTINGS, merge_settings(changes, {"train": {"precision": "bf16"}}))
    assert train_simulated(watched(tmp_path / "bf16", manifest, {}, **plain), StopFlag())
    with pytest.raises(DivergedError):
        unchecked(tmp_path, manifest, monkeypatch, merge_settings(changes, {"train": {"precision": "fp16"}}))


@pytest.mark.parametrize(
    "changes", [{"schedule": {"name": "linear", "final": 0.001}}, {"warm_up": {"steps": 5}}], ids=str
)
def test_the_rate_of_the_server_ignores_the_steps_of_a_schedule(tmp_path, manifest, monkeypatch, changes):
    rates, update = [], Downpour.update

    def noted(self, replica, number):
        rates.append(replica.lr)
        return update(self, replica, number)

    monkeypatch.setattr(Downpour, "update", noted)
    unchecked(tmp_path, manifest, monkeypatch, {"train": changes})
    # The rate changes between epochs only; a schedule changes it after each step.
    assert len(rates) > 10
    assert len(set(rates)) <= SETTINGS["train"]["epochs"]
