"""Commands of NNLO's users, in a checkout of its layout: the examples import models, files and adaptors."""

import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.nnlo_command import nnlo
from helpers.requires import absent

from nnlo_lib.compat.importers.translate import import_experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.workflow.single_run import prepare_task

TRAIN = "mpirun -np 3 ./TrainingDriver.py --model examples/{} --loss categorical_crossentropy --epochs 1 --batch 5"
SEARCH = "mpirun -np 7 ./OptimizationDriver.py --model examples/{} --block-size 3 --batch 5"
SHORT = ("train.steps_per_epoch=1", "parallel.transport=simulated")
SAMPLES = 20  # per file
FILES = {
    "models/Models.py": """
import glob
from keras.layers import Conv2D, Dense, Flatten, Input
from keras.models import Sequential
from skopt.space import Integer, Real

def make_mnist_model(nb_filters=4, dense=8, dropout=0.1):
    convolution = Conv2D(nb_filters, 5, strides=3, activation="relu")
    head = Flatten(), Dense(dense, activation="relu"), Dense(10, activation="softmax")
    return Sequential([Input((28, 28, 1)), convolution, *head])

make_mnist_model.parameter_range = [
    Integer(2, 6, name="nb_filters"), Integer(5, 20, name="dense"), Real(0.0, 0.5, name="dropout"),
]

def mnist_files(kind):
    return sorted(glob.glob(f"files/mnist_{kind}_*.h5"))

def get_train():
    return mnist_files("train")

def get_val():
    return mnist_files("test")
""",
    "models/TorchModels.py": """
from skopt.space import Integer
from torch import nn

class MNISTNet(nn.Module):
    def __init__(self, dense):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=3)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4 * 8 * 8, dense), nn.ReLU(), nn.Linear(dense, 10))

    def forward(self, x):
        return self.head(self.conv(x.permute(0, 3, 1, 2)).relu())

def make_mnist_torch(dense=8):
    return MNISTNet(dense)

make_mnist_torch.parameter_range = [Integer(5, 20, name="dense")]
""",
    "examples/example_hls4mlgru.py": """
from keras.layers import GRU, Dense, Input, Permute
from keras.models import Model

def get_model(units=4):
    tracks = Input((6, 9))
    return Model(tracks, Dense(5, activation="softmax")(GRU(units)(Permute((2, 1))(tracks))))

def get_train():
    return ["files/jets_train_0.h5"]

def get_val():
    return ["files/jets_test_0.h5"]

def get_features():
    return "jetConstituentList", lambda x: x.swapaxes(1, 2)

def get_labels():
    return "jets", lambda y: y[:, -6:-1]
""",
    "examples/example_jedi_torch.py": """
from torch import nn
from examples.example_hls4mlgru import get_features, get_labels, get_train, get_val

def get_model(De=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(6 * 9, De), nn.ReLU(), nn.Linear(De, 5))
""",
    "examples/example_mnist.py": "from models.Models import *\nget_model = make_mnist_model\n",
    "examples/example_mnist_torch.py": "from models.Models import *\nfrom models.TorchModels import *\nget_model = make_mnist_torch\n",
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the layout of NNLO's checkout, images with channels last and jets with a table of labels."""
    if missing := [name for name in ("keras", "skopt") if find_spec(name) is None]:
        absent(f"no {missing[0]}")
    folder = tmp_path_factory.mktemp("NNLO")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "files").mkdir()
    draw, numbers = np.random.default_rng(0), np.arange(SAMPLES)
    for kind in ("train", "test"):
        with h5py.File(folder / f"files/mnist_{kind}_0.h5", "w") as file:
            file["features"] = draw.random((SAMPLES, 28, 28, 1), np.float32)
            file["labels"] = np.eye(10, dtype=np.float32)[numbers % 10]
        with h5py.File(folder / f"files/jets_{kind}_0.h5", "w") as file:
            file["jetConstituentList"] = draw.random((SAMPLES, 9, 6), np.float32)
            file["jets"] = np.hstack(
                [draw.random((SAMPLES, 3)), np.eye(5)[numbers % 5], np.zeros((SAMPLES, 1))]
            )
    return folder


@pytest.fixture(autouse=True)
def in_checkout(checkout, monkeypatch):
    """Work in the checkout, whose folder only the command itself puts on the path."""
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(checkout))])
    yield
    # Other tests of this process may have a package `models` of their own.
    for name in [each for each in sys.modules if each.partition(".")[0] in ("models", "examples")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("example", "shape", "classes"),
    [
        ("example_mnist.py", (28, 28, 1), 10),
        pytest.param("example_mnist_torch.py", (28, 28, 1), 10, marks=pytest.mark.exhaustive),
        pytest.param("example_hls4mlgru.py", (6, 9), 5, marks=pytest.mark.exhaustive),
        ("example_jedi_torch.py", (6, 9), 5),
    ],
)
def test_an_example_is_imported_checked_and_trained(example, shape, classes):
    Path("x.yaml").write_text(import_experiment([TRAIN.format(example)]).text)
    done = nnlo("check", "x.yaml", folder=Path.cwd())
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr + Path("x.yaml").read_text()
    experiment = load_experiment("x.yaml", SHORT)
    task = prepare_task(experiment, next(iter(experiment.variants)), 0, None)
    manifest = DataManifest.load(task.manifest)
    assert (manifest.inputs[0].shape, manifest.classes) == (shape, classes)
    assert train_simulated(task, StopFlag())
    assert task.paths.history.exists()


@pytest.mark.parametrize(
    ("example", "searched"),
    [("example_mnist.py", {"nb_filters", "dense", "dropout"}), ("example_mnist_torch.py", {"dense"})],
)
def test_ranges_of_an_imported_function_are_searched(example, searched):
    Path("x.yaml").write_text(import_experiment([SEARCH.format(example)]).text)
    assert load_experiment("x.yaml").search.space.keys() == {f"model.args.{name}" for name in searched}
    assert nnlo("check", "x.yaml", folder=Path.cwd()).returncode == 0


def test_an_edit_of_an_imported_module_is_another_store():
    Path("x.yaml").write_text(import_experiment([TRAIN.format("example_mnist.py")]).text)
    experiment = load_experiment("x.yaml")
    before = prepare_task(experiment, next(iter(experiment.variants)), 0, None).manifest
    with open("models/Models.py", "a") as file:
        file.write("# edited\n")
    assert prepare_task(experiment, next(iter(experiment.variants)), 0, None).manifest != before


def test_a_module_that_lacks_keras_needs_no_correction(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    Path("examples/needs_keras.py").write_text("import keras\n")
    text = " ".join(import_experiment([TRAIN.format("needs_keras.py")]).text.replace("#", "").split())
    assert "pip install 'nnlo[keras]', and import the command again" in text
    assert "correct the file" not in text


def test_the_page_names_a_module_that_cannot_be_loaded():
    Path("examples/broken.py").write_text("import tensorflow_of_2017\n")
    text = import_experiment([TRAIN.format("broken.py")]).text
    assert "examples/broken.py cannot be loaded (examples/broken.py:1" in " ".join(
        text.replace("#", "").split()
    )
