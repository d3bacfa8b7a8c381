"""`nnlo reproduce` writes files from which a training is repeated bit for bit, without the original files of the user."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers.nnlo_command import nnlo, nnlo_process, refused

pytestmark = [pytest.mark.processes, pytest.mark.long]

NET = """
from torch import nn

from layers import WIDTH

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.Dropout(0.2), nn.Linear(WIDTH, classes))
"""
EXPERIMENT = {
    "name": "mine",
    "train": {"epochs": 2, "batch_size": 50, "optimizer": {"name": "adam", "lr": 0.01}},
    "data": {"augment": {"pad": 1}},
    "parallel": {"ranks": 2, "transport": "simulated"},
    "metrics": ["top2_accuracy"],
    "runs": {"a": {"train": {"epochs": 1}}, "b": {"algorithm": {"name": "dsgd"}}},
    "seeds": [4, 7],
}


def project(folder: Path, model: str, **settings: object) -> Path:
    """Write an experiment file into a folder; return the folder."""
    folder.mkdir()
    (folder / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT | {"model": {"name": model}} | settings))
    return folder


def code(folder: Path) -> list[Path]:
    """Write a network and the module that it imports into a folder; return the files."""
    folder.mkdir(exist_ok=True)
    (folder / "net.py").write_text(NET)
    (folder / "layers.py").write_text("WIDTH = 12\n")
    return [folder / "net.py", folder / "layers.py"]


@pytest.mark.parametrize("place", ["inside", "absolute", "above"])
def test_the_same_bits_come_out_in_a_new_folder_without_the_original_files(tmp_path, place):
    files = code(tmp_path / {"inside": "project", "absolute": "elsewhere", "above": "shared"}[place])
    model = {"inside": "net.py", "absolute": str(files[0]), "above": "../shared/net.py"}[place] + ":net"
    shutil.rmtree(tmp_path / "project", ignore_errors=True)
    old = project(tmp_path / "project", model, folds=2)
    files += code(old) if place == "inside" else []
    job = "results/mine/b/seed-7/fold-1"
    done = nnlo_process("run", "mine.yaml", "--run", "b", "--seed", "7", "--fold", "1", folder=old)
    assert done.returncode == 0, done.stderr
    for file in [*files, old / "mine.yaml"]:
        file.unlink(missing_ok=True)

    told = nnlo("reproduce", job, str(tmp_path / "new"), folder=old)
    assert told.returncode in (None, 0), told.stderr
    command = re.search(r"&& nnlo (.+)", told.stdout)[1].split()
    again = nnlo_process(*command, folder=tmp_path / "new")
    assert again.returncode == 0, again.stderr
    for name in ("model.safetensors", "partition.npz"):
        assert (tmp_path / "new" / job / name).read_bytes() == (old / job / name).read_bytes()
    before, after = (
        json.loads((root / job / "evaluation.json").read_text()) for root in (old, tmp_path / "new")
    )
    assert before == after
    refusal = nnlo("reproduce", job, str(tmp_path / "new"), folder=old)
    assert "experiment.yaml: the file exists; choose another folder" in refused(refusal)


def test_a_copy_that_was_edited_is_refused(tmp_path):
    old = project(tmp_path / "project", "net.py:net")
    code(old)
    assert nnlo_process("run", "mine.yaml", folder=old).returncode == 0
    job = old / "results/mine/a/seed-4"
    (job / "code/layers.py").write_text("WIDTH = 13\n")
    assert "layers.py: not the file that the training used" in refused(
        nnlo("reproduce", str(job), str(tmp_path / "new"))
    )
    (job / "code/layers.py").unlink()
    assert "layers.py: not found; the training used" in refused(
        nnlo("reproduce", str(job), str(tmp_path / "new"))
    )
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_training_is_refused(tmp_path):
    assert "the training is not finished" in refused(nnlo("reproduce", str(tmp_path), str(tmp_path / "new")))
