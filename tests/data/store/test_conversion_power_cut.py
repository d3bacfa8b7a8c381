"""A power cut at any moment of a conversion: the next conversion makes the undisturbed store, or reads a complete one."""

import hashlib
from pathlib import Path

import pytest
from helpers.power_cut import PowerCutRecorder

from nnlo_lib.config import Experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.train.prepare_dataset import prepare_dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def convert(store: Path, kind: str) -> None:
    data = Experiment.model_validate({"data": {"dataset": "digits", "format": kind, "shard_size": 500}}).data
    prepare_dataset(data, store)


def arrays(store: Path) -> dict[str, str]:
    """Return the checksums of the manifest, after a comparison of each shard with its checksum."""
    manifest = DataManifest.load(store / "manifest.json")
    manifest.verify()
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.glob("*-*.*")}


@pytest.mark.parametrize("kind", ["hdf5", "npz"])
def test_the_next_conversion_makes_the_undisturbed_store(tmp_path, kind):
    whole = tmp_path / "whole"
    whole.mkdir()
    with PowerCutRecorder(whole) as recorder:
        convert(whole / "digits" / kind, kind)
    expected = arrays(whole / "digits" / kind)
    assert expected
    print(f"{kind}: {recorder.moments} moments, {len(recorder.states)} different states")
    for number, state in enumerate(recorder.states):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write(folder)
        convert(folder / "digits" / kind, kind)
        assert arrays(folder / "digits" / kind) == expected, f"{state.kind} at {state.moment} ({state.event})"
