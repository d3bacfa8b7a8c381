"""A power cut at any moment of a conversion: the next conversion makes the undisturbed store, or reads a complete one."""

import hashlib
from pathlib import Path

import pytest
from helpers.power_cut import PowerCutRecorder

from nnlo_lib.config import Experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.train.task import prepare_dataset


def convert(store: Path, kind: str) -> None:
    data = Experiment.model_validate({"data": {"dataset": "digits", "format": kind, "shard_size": 900}}).data
    prepare_dataset(data, store)


def arrays(store: Path) -> dict[str, str]:
    """Return the checksums of the shards, after a comparison of each with the manifest."""
    DataManifest.load(store / "manifest.json").verify()
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.glob("*-*.*")}


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("npz", 8),
        pytest.param("npz", 1, marks=pytest.mark.exhaustive),
        pytest.param("hdf5", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_the_next_conversion_makes_the_undisturbed_store(tmp_path, kind, step):
    whole = tmp_path / "whole"
    whole.mkdir()
    with PowerCutRecorder(whole) as recorder:
        convert(whole / "digits" / kind, kind)
    expected = arrays(whole / "digits" / kind)
    assert len(expected) == 3
    states = recorder.states[step - 1 :: step]
    assert len(states) > 3
    for number, state in enumerate(states):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write(folder)
        convert(folder / "digits" / kind, kind)
        assert arrays(folder / "digits" / kind) == expected, f"{state.kind} at {state.moment} ({state.event})"
