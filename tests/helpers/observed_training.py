"""Trainings of simulated ranks in this process, with observers, on a synthetic store."""

from pathlib import Path

import numpy as np

from helpers.synthetic_store import handmade
from nnlo_lib.config import Run
from nnlo_lib.train.task import Task

SAMPLES = 200


def store(folder: Path) -> Path:
    """Write a store of 8 x 8 images in two easily separable classes; return the path of its manifest."""
    draw = np.random.default_rng(0)
    labels = np.arange(SAMPLES) % 2
    images = draw.integers(0, 128, (SAMPLES, 1, 8, 8)) + 100 * labels[:, None, None, None]
    splits = {name: (images.astype(np.uint8), labels.astype(np.int64)) for name in ("train", "test")}
    return handmade(folder, splits).folder / "manifest.json"


def watched(folder: Path, manifest: Path, observe: dict, ranks: int = 1, **settings: object) -> Task:
    """Return a task of 3 epochs, by default with 9 steps per epoch on one rank."""
    train = {"epochs": 3, "batch_size": 20, **settings.pop("train", {})}
    run = {
        "observe": observe,
        "train": train,
        "parallel": {"ranks": ranks, "transport": "simulated"},
        **settings,
    }
    return Task("t", "t", Run.model_validate(run), 0, None, 1, manifest, folder)
