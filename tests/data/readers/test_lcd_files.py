"""Raw files of the LCD calorimeter, read with the adaptors of config/experiments/lcd.py."""

import ast

import h5py
import numpy as np
import pytest
import yaml
from helpers.nnlo_command import REPOSITORY

from nnlo_lib.config import Run
from nnlo_lib.data.readers.base import read

ADAPTORS = REPOSITORY / "config/experiments/lcd.py"


def documented_reader():
    """Return the reader section in the text of the file, whose paths start at the repository."""
    text = ast.get_docstring(ast.parse(ADAPTORS.read_text()))
    return yaml.safe_load(text.partition("\n\n")[2])["data"]["reader"]


@pytest.mark.parametrize("form", [(4, 5), (4, 1, 5)])
def test_raw_files_become_showers_and_energies(tmp_path, monkeypatch, form):
    monkeypatch.chdir(REPOSITORY)
    draw = np.random.default_rng(0)
    raw = draw.exponential(1e-3, (4, 25, 25, 25))
    raw[0, 0, 0, :3] = [9.9e-5, 1e-4, 1.1e-4]
    target = draw.random((4, 5))
    target[:, 1] = [10, 100, 250, 500]  # GeV
    with h5py.File(tmp_path / "EleEscan_1_1.h5", "w") as file:
        file["ECAL"], file["target"] = raw, target.reshape(form)
    reader = documented_reader()
    Run.model_validate({"data": {"dataset": "lcd", "source": str(tmp_path), "reader": reader}})
    contents = read("arrays", tmp_path, 10, {key: value for key, value in reader.items() if key != "name"})
    (block,) = [unit.read() for unit in contents.units]
    assert contents.classes is None
    assert block.labels.tolist() == [0.1, 1.0, 2.5, 5.0]
    (showers,) = block.inputs
    assert (showers.shape, showers.dtype) == ((4, 1, 25, 25, 25), np.float32)
    assert showers[0, 0, 0, 0, :3].tolist() == [0, np.float32(1e-4), np.float32(1.1e-4)]
    kept = raw >= 1e-4
    assert np.array_equal(showers[:, 0][kept], raw[kept].astype(np.float32))
    assert not showers[:, 0][~kept].any()
