"""Predictions of images by `nnlo predict`: equal to those of the evaluation, for the same images in other places."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_here import train_here
from PIL import Image

from nnlo_lib.config import Experiment
from nnlo_lib.data.readers.folder import ImageTree
from nnlo_lib.state.finished_run import FinishedRun

CLASSES = ("Äpfel", "old pears", "plums")
COLOURS = ((200, 40, 40), (40, 200, 40), (60, 60, 200))
KINDS = {
    "photos": {"size": 12, "colour": "rgb"},
    "16 bits": {"size": 12, "colour": "grey", "resize": "pydtnn"},
}


def draw_photo(path, number, draw):
    """Write a photo of a class in one of several sizes; the third of each class lies on its side, with a flag of EXIF."""
    size, orientation = [(20, 30), (31, 17), (12, 12)][number % 3], Image.Exif()
    colour = np.array(COLOURS[CLASSES.index(path.parent.name)])
    pixels = np.clip(colour + draw.normal(0, 60, (*size, 3)), 0, 255).astype(np.uint8)
    pixels[: size[0] // 2] //= 2
    orientation[0x0112] = 6 if number % 3 == 2 else 1
    Image.fromarray(pixels).save(path, quality=95, exif=orientation)


def draw_deep_image(path, number, draw):
    """Write a gray image of 16 bits that uses few of its levels, as a detector does."""
    level = 500 + 300 * CLASSES.index(path.parent.name)
    Image.fromarray(draw.integers(level, level + 400, (18 + number % 5, 21)).astype(np.uint16)).save(path)


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    """Return the folder of a trained and evaluated run, in a folder with `photos`."""
    folder, draw = tmp_path_factory.mktemp("fruit"), np.random.default_rng(0)
    suffix, write = (".JPG", draw_photo) if request.param == "photos" else (".png", draw_deep_image)
    for split, count in (("train", 15), ("val", 8)):
        for name in CLASSES:
            (folder / "photos" / split / name).mkdir(parents=True)
            for number in range(count):
                write(folder / "photos" / split / name / f"{number}{suffix}", number, draw)
    reader = {"name": "folder", **KINDS[request.param]}
    data = {"dataset": "fruit", "source": "photos", "reader": reader, "normalize": "standard"}
    settings = {
        "name": "fruit",
        "data": data,
        "model": {"name": "simplecnn"},
        "train": {"epochs": 2, "batch_size": 9},
        "parallel": {"ranks": 1, "transport": "simulated"},
        "runs": {"one": {}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder / train_here(Experiment.model_validate(settings), "one")


def predictions(run: Path, *images: str) -> pd.DataFrame:
    """Return the table that `nnlo predict` writes."""
    project = run.parents[3]
    done = nnlo("predict", "results/fruit", *images, "--output", "out.csv", folder=project)
    assert not done.returncode, done.stderr
    return pd.read_csv(project / "out.csv")


def test_each_image_of_the_test_split_is_predicted_as_the_evaluation_did(trained):
    evaluated, saved = FinishedRun(trained).evaluation, np.load(trained / "predictions.npz")
    table = predictions(trained, "photos/val")
    assert list(table["row"]) == list(range(1, 25))
    # The oracle: the sub-folder is the true class.
    accuracy = (table["predicted"] == table["file"].str.partition("/")[0]).mean()
    assert accuracy == pytest.approx(evaluated["accuracy"])
    order = [
        path.removeprefix("val/") for path, _ in ImageTree.of(trained.parents[3] / "photos").splits["test"]
    ]
    outputs = table.set_index("file").loc[order, [f"probability_{name}" for name in sorted(CLASSES)]]
    np.testing.assert_allclose(outputs, saved["outputs"], atol=1e-6)


def test_files_and_a_flat_folder_give_the_same_as_folders_of_classes(trained):
    table = predictions(trained, "photos/val").set_index("file").drop(columns="row")
    project, files = trained.parents[3], list(table.index)
    (project / "flat").mkdir(exist_ok=True)
    for number, file in enumerate(files):
        shutil.copy(project / "photos/val" / file, project / "flat" / f"{number:02d}{file[-4:]}")
    (project / "flat" / "notes.txt").touch()
    flat = predictions(trained, "flat")
    assert [int(name[:2]) for name in flat["file"]] == list(range(len(files)))
    single = predictions(trained, *(f"photos/val/{file}" for file in files[:3]))
    assert list(single["file"]) == [f"photos/val/{file}" for file in files[:3]]
    for other in (flat, single):
        numbers = other.drop(columns=["row", "file", "predicted"]).to_numpy()
        np.testing.assert_allclose(numbers, table.drop(columns="predicted")[: len(other)], atol=1e-6)


def test_images_that_cannot_be_predicted_are_refused_by_name(trained):
    project = trained.parents[3]
    (project / "bad").mkdir(exist_ok=True)
    command = ("predict", "results/fruit/one/seed-0", "bad", "--output", "bad.csv")
    assert "bad: no image found (.jpg" in refused(nnlo(*command, folder=project))
    image = next((project / "photos/val/plums").iterdir())
    shutil.copy(image, project / "bad" / f"a{image.suffix}")
    (project / "bad" / "b.png").write_bytes(image.read_bytes()[:60])
    assert "bad/b.png: not a decodable image" in (said := refused(nnlo(*command, folder=project)))
    assert said.endswith("; replace the image, or leave it out\n")
    assert not (project / "bad.csv").exists()
