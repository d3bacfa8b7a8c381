"""`nnlo reproduce` writes files from which a training is repeated bit for bit, without the original files of the user."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from helpers import fork_server
from helpers.nnlo_command import nnlo, refused
from helpers.repository_copy import environment
from helpers.training_here import run_here

pytestmark = pytest.mark.processes

NET = """
from torch import nn

from layers import WIDTH

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.Dropout(0.2), nn.Linear(WIDTH, classes))
"""
EXPERIMENT = {
    "name": "mine",
    "train": {"epochs": 1, "batch_size": 50, "optimizer": {"name": "adam", "lr": 0.01}},
    "data": {"augment": {"pad": 1}},
    "parallel": {"ranks": 2, "transport": "simulated"},
    "metrics": ["top2_accuracy"],
    "runs": {"a": {"train": {"epochs": 2}}, "b": {"algorithm": {"name": "dsgd"}}},
    "seeds": [4, 7],
    "folds": 2,
}
JOB = "results/mine/b/seed-7/fold-1"


def train(folder: Path, *arguments: str) -> None:
    """Run the command in a process, because modules of the user are imported by their names."""
    done = subprocess.run(
        [*fork_server.nnlo(), *arguments], cwd=folder, env=environment(), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


PLACES = ["above", *(pytest.param(place, marks=pytest.mark.exhaustive) for place in ("inside", "absolute"))]


@pytest.fixture(scope="module", params=PLACES)
def project(request, tmp_path_factory) -> Path:
    """Return a folder with a finished training; the files of the user are gone, only their copies remain."""
    root = tmp_path_factory.mktemp("reproduce")
    project = root / "project"
    code = {"above": root / "shared", "inside": project, "absolute": root / "elsewhere"}[request.param]
    for folder in {project, code}:
        folder.mkdir()
    named = {"above": "../shared/net.py", "inside": "net.py", "absolute": str(code / "net.py")}[request.param]
    (project / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT | {"model": {"name": f"{named}:net"}}))
    (code / "net.py").write_text(NET)
    (code / "layers.py").write_text("WIDTH = 12\n")
    train(project, "run", "mine.yaml", "--run", "b", "--seed", "7", "--fold", "1")
    for file in (code / "net.py", code / "layers.py", project / "mine.yaml"):
        file.unlink()
    return project


def test_a_training_is_repeated_bit_for_bit_without_the_original_files(project, tmp_path):
    done = nnlo("reproduce", JOB, str(tmp_path / "new"), folder=project)
    assert done.returncode in (None, 0), done.stderr
    train(tmp_path / "new", *re.search(r"&& nnlo (.+)", done.stdout)[1].split())
    for name in ("model.safetensors", "partition.npz"):
        assert (tmp_path / "new" / JOB / name).read_bytes() == (project / JOB / name).read_bytes()
    before, after = (root / JOB / "evaluation.json" for root in (project, tmp_path / "new"))
    assert json.loads(before.read_text()) == json.loads(after.read_text())
    refusal = nnlo("reproduce", JOB, str(tmp_path / "new"), folder=project)
    assert "experiment.yaml: the file exists; choose another folder" in refused(refusal)


def test_a_copy_of_the_code_that_was_edited_is_refused(project, tmp_path):
    shutil.copytree(project, tmp_path / "project")
    new = tmp_path / "new"
    [layers] = (tmp_path / "project" / JOB / "code").rglob("layers.py")
    layers.write_text("WIDTH = 13\n")
    refusal = nnlo("reproduce", JOB, str(new), folder=tmp_path / "project")
    assert "layers.py: not the file that the training used" in refused(refusal)
    layers.unlink()
    refusal = nnlo("reproduce", JOB, str(new), folder=tmp_path / "project")
    assert "layers.py: not found; the training used" in refused(refusal)
    assert not new.exists()


READER = """
import numpy as np

from nnlo_lib import contents_of_arrays

def read(folder, shard_size):
    x, y = np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40) % 2
    return contents_of_arrays({"train": (x, y), "test": (x, y)}, folder, shard_size)
"""


def test_a_reader_that_is_edited_after_the_training_is_repeated_from_its_copy_or_refused(tmp_path):
    project, reader = tmp_path / "project", tmp_path / "project/rows.py"
    (project / "files").mkdir(parents=True)
    settings = {
        "name": "rows", "data": {"dataset": "rows", "source": "files", "reader": {"name": "rows.py:read"}},
        "model": {"name": "perceptron"}, "train": {"epochs": 1, "batch_size": 10}, "parallel": EXPERIMENT["parallel"],
        "runs": {"a": {}}, "seeds": [4],
    }  # fmt: skip
    (project / "rows.yaml").write_text(yaml.safe_dump(settings))
    reader.write_text(READER)
    job = "results/rows/a/seed-4"
    assert run_here("rows.yaml", folder=project).returncode == 0
    reader.write_text(READER + "# edited\n")
    done = nnlo("reproduce", job, str(tmp_path / "again"), folder=project)
    assert (tmp_path / "again/rows.py").read_text() == READER
    assert "rows.py" not in done.stdout
    # The next training, on the store of the edited reader, has its own copy.
    assert run_here("rows.yaml", folder=project).returncode == 0
    assert (project / job / "code/rows.py").read_text() == READER + "# edited\n"
    (project / job / "code/rows.py").unlink()
    reader.write_text(READER)
    refusal = nnlo("reproduce", job, str(tmp_path / "third"), folder=project)
    assert "rows.py: not the file that the training used" in refused(refusal)


def test_a_folder_without_a_training_is_refused(tmp_path):
    assert "the training is not finished" in refused(nnlo("reproduce", str(tmp_path), str(tmp_path / "new")))
