"""The example of robots that map a building, shortened: data, partition, map, and a training on points."""

import csv
import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.nnlo_command import REPOSITORY, nnlo
from helpers.training_here import run_here
from PIL import Image
from scipy.ndimage import binary_dilation

from nnlo_lib.core.rng import derive_seed
from nnlo_lib.data.contact_sheet import WAY
from nnlo_lib.data.lidar.floor_plan import floor_plan
from nnlo_lib.data.partition import load_partition
from nnlo_lib.data.readers.lidar import read
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.report.sections.nodes import node_maps
from nnlo_lib.state.finished_run import FinishedRun

OWN_POINTS = """
data:
  dataset: own
  source: .
  reader: {name: arrays, train: [train.npz], test: [test.npz], features: x, labels: y, one_hot: false}
  validation: test
problem: regression
loss: binary_cross_entropy
metrics: [binary_accuracy]
model: {name: fourier, args: {hidden: [8]}}
train: {epochs: 1, batch_size: 100}
algorithm: {name: allreduce}
parallel: {ranks: 1}
observe: {maps: true}
"""
READER = {"robots": 4, "scans": 60, "width": 240, "height": 200, "validation_scans": 40, "test_scans": 20}


@pytest.mark.long("plans the paths of four robots, converts 150,000 points and trains four networks on them")
def test_robots_have_their_own_points_and_learn_from_each_other(tmp_path):
    settings = yaml.safe_load((REPOSITORY / "config/experiments/lidar-quick.yaml").read_text())
    settings["data"]["reader"] |= READER
    settings["train"] |= {"epochs": 3, "batch_size": 500, "steps_per_epoch": 20}
    settings["topology"] = {"name": "disk", "positions": "trajectory", "radius": 3.0, "rounds": 12}
    settings["observe"] = {"maps": True}
    settings["parallel"] = settings.get("parallel", {}) | {"transport": "simulated"}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(settings))
    done = run_here("t.yaml", "--run", "dinno", folder=tmp_path)
    assert not done.returncode, done.stderr
    (manifest,) = tmp_path.glob("data/lidar/*/manifest.json")
    split = Split(DataManifest.load(manifest), "train")
    (folder,) = tmp_path.glob("results/lidar-quick/dinno/seed-0")
    _, parts = load_partition(folder / "state/partition.npz")
    assert [len(part) for part in parts] == [60 * 500] * 4
    contents = read(tmp_path, 60 * 500, **READER)
    for unit, part in zip(contents.units, parts, strict=False):
        np.testing.assert_array_equal(split.take(part)[0][0], unit.read().inputs[0])
    with (folder / "history.csv").open() as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0]
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["samples"] == 20 * 500
    assert evaluation["binary_accuracy"] > 0.85
    check_node_maps(folder, DataManifest.load(manifest))
    shown = nnlo("data", "t.yaml", "--run", "dinno", folder=tmp_path).stdout
    assert "map of the samples: results/lidar-quick/data-lidar.png" in shown
    check_map(tmp_path / "results/lidar-quick/data-lidar.png", split)


def check_node_maps(folder: Path, manifest: DataManifest) -> None:
    """Check the plan, the positions and the size of the maps of each epoch, and that the report draws them."""
    with np.load(folder / "maps.npz") as found:
        arrays = dict(found)
    assert sorted(arrays) == sorted(
        f"{kind}_{step}"
        for kind in ("links", "map", "next_round", "plan", "positions")
        for step in (20, 40, 60)
    )
    plan = arrays["plan_20"]
    walls = floor_plan(derive_seed(0, "floor plan"), READER["width"], READER["height"], 80)
    np.testing.assert_array_equal(plan, walls[1::2, 1::2])  # 120 cells of two pixels, at most 128
    maps = arrays["map_60"] / 255
    assert maps.shape == (4, *plan.shape)
    assert 0 <= maps.min() < maps.max() <= 1
    # Rounds 8 to 11 of 12, the last of three epochs of four rounds.
    first = np.stack(
        [
            Split(manifest, "train").take(np.arange(4) * 60 * 500 + round * 60 // 12 * 500)[0][0]
            for round in range(8, 12)
        ]
    )
    pixels = first * 120 + [119.5, 99.5]
    np.testing.assert_allclose(arrays["positions_60"], (pixels - 1) / 2, atol=1e-3)
    (frames,) = node_maps([FinishedRun(folder)]).values()
    assert [frame.step for frame in frames] == [20, 40, 60]
    places, links = zip(*frames[-1].rounds, strict=True)
    np.testing.assert_allclose(places, (pixels / 2) * 512 / 120, atol=0.51)
    assert [len(each) for each in links] == [
        each.sum() // 2 - 2 for each in arrays["links_60"]
    ]  # without the diagonal
    assert (drawn(frames[-1].plan) == np.where(plan, 0, 255)).all()
    for (picture, overlap), each in zip(frames[-1].models, maps, strict=True):
        occupied, walls = each >= 0.5, plan == 1
        assert overlap == pytest.approx((occupied & walls).sum() / (occupied | walls).sum())
        assert abs(drawn(picture) / 255 - (1 - each)).max() < 0.04


def drawn(picture: str) -> np.ndarray:
    """Return the pixels of a data URL."""
    return np.asarray(Image.open(BytesIO(b64decode(picture.partition(",")[2]))))


def test_without_a_plan_the_validation_samples_show_the_plane(tmp_path):
    draw = np.random.default_rng(0)
    for split, count in (("train", 200), ("test", 50)):
        points = draw.uniform(-1, 1, (count, 2)).astype(np.float32)
        np.savez(tmp_path / f"{split}.npz", x=points, y=(points[:, 0] > 0).astype(np.float32))
    (tmp_path / "t.yaml").write_text(OWN_POINTS)
    done = run_here("t.yaml", folder=tmp_path)
    assert not done.returncode, done.stderr
    (path,) = tmp_path.glob("results/**/maps.npz")
    plan = np.load(path)["plan_2"]
    columns = np.arange(plan.shape[1])[None] * np.ones((len(plan), 1))
    seen = np.isfinite(plan)
    assert max(plan.shape) == 64
    assert 30 < seen.sum() <= 50
    assert columns[seen & (plan == 0)].max() <= columns[seen & (plan == 1)].min()


def check_map(path: Path, split: Split) -> None:
    """Check that dark pixels are near occupied points, and light ones near free points, below the ways of the robots."""
    colors = np.asarray(Image.open(path)).astype(int)
    is_way = (colors == WAY).all(2)
    pixels = colors.sum(2)
    (points,), labels = split.take(np.arange(len(split)))
    places = np.rint((points - points.min(0)) / np.ptp(points, axis=0).max() * 639).astype(int)
    occupied = pixels[places[labels == 1][:, 1], places[labels == 1][:, 0]]
    free = pixels[places[labels == 0][:, 1], places[labels == 0][:, 0]]
    assert occupied.mean() < 300 < 500 < free.mean()
    seen = np.zeros(pixels.shape, bool)
    seen[places[:, 1], places[:, 0]] = True
    written = binary_dilation(is_way, iterations=20)  # numbers of robots, with mixed colors at their rims
    assert (pixels[~seen & ~written] == 3 * 255).all(), "what no robot has seen is white"
    starts = places[np.arange(4) * 60 * 500]
    assert binary_dilation(is_way)[starts[:, 1], starts[:, 0]].all()
