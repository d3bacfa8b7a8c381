"""Adaptors for the raw files of showers in the LCD calorimeter: arrays `ECAL` and `target`, as NNLO's get_3d.py read them.

data:
  dataset: lcd
  source: /path/of/the/files
  reader:
    name: arrays
    train: "EleEscan_*.h5"
    features: ECAL
    adaptor: config/experiments/lcd.py:cells
    labels: target
    label_adaptor: config/experiments/lcd.py:energies
    one_hot: false
"""

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 1e-4  # GeV; lower energies of a cell are noise of the simulation
UNIT = 100.0  # GeV; energies of particles become 0.1 .. 5


def cells(showers: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return showers (n, 1, 25, 25, 25) of (n, 25, 25, 25) energies in cells, those below the threshold set to 0."""
    return np.where(showers < THRESHOLD, 0, showers)[:, None].astype(np.float32)


def energies(target: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the energies of the particles, the second number of each row of `target`, in units of 100 GeV."""
    return target.reshape(len(target), -1)[:, 1].astype(np.float64) / UNIT
