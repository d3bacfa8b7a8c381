"""A folder with the layout of NNLO's checkout: examples that import models, files and adaptors; and small data."""

from pathlib import Path

import h5py
import numpy as np

SAMPLES = 20  # per file
FILES = {
    "models/Models.py": """
import glob

from keras.layers import Conv2D, Dense, Flatten, Input
from keras.models import Sequential
from skopt.space import Integer, Real


def make_mnist_model(nb_filters=4, dense=8, dropout=0.1):
    return Sequential(
        [
            Input((28, 28, 1)),
            Conv2D(nb_filters, 5, strides=3, activation="relu"),
            Flatten(),
            Dense(dense, activation="relu"),
            Dense(10, activation="softmax"),
        ]
    )


make_mnist_model.parameter_range = [
    Integer(2, 6, name="nb_filters"),
    Integer(5, 20, name="dense"),
    Real(0.0, 0.5, name="dropout"),
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
    x = GRU(units)(Permute((2, 1))(tracks))
    return Model(tracks, Dense(5, activation="softmax")(x))


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
import torch
from torch import nn

from examples.example_hls4mlgru import get_features, get_labels, get_train, get_val  # noqa: F401


class GraphNet(nn.Module):
    def __init__(self, effects):
        super().__init__()
        pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
        self.receiver, self.sender = (list(each) for each in zip(*pairs))
        self.relation, self.object = nn.Linear(12, effects), nn.Linear(6 + effects, 7)
        self.head = nn.Linear(7, 5)

    def forward(self, x):
        x = x.transpose(1, 2)
        effects = self.relation(torch.cat([x[:, self.receiver], x[:, self.sender]], 2)).relu()
        summed = effects.unflatten(1, (9, 8)).sum(2)
        return self.head(self.object(torch.cat([x, summed], 2)).relu().sum(1))


def get_model(De=4):
    return GraphNet(De)
""",
    "examples/example_mnist.py": """
from models.Models import *

get_model = make_mnist_model


def get_name():
    return "mnist"
""",
    "examples/example_mnist_torch.py": """
from models.Models import *
from models.TorchModels import *

get_model = make_mnist_torch


def get_name():
    return "mnist_torch"
""",
}


def write_checkout(folder: Path) -> Path:
    """Write the files, images with channels last and jets with a table of labels; return the folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "files").mkdir()
    draw = np.random.default_rng(0)
    for kind in ("train", "test"):
        with h5py.File(folder / f"files/mnist_{kind}_0.h5", "w") as file:
            file["features"] = draw.random((SAMPLES, 28, 28, 1), np.float32)
            file["labels"] = np.eye(10, dtype=np.float32)[np.arange(SAMPLES) % 10]
        with h5py.File(folder / f"files/jets_{kind}_0.h5", "w") as file:
            file["jetConstituentList"] = draw.random((SAMPLES, 9, 6), np.float32)
            one_hot = np.eye(5)[np.arange(SAMPLES) % 5]
            file["jets"] = np.hstack([draw.random((SAMPLES, 3)), one_hot, np.zeros((SAMPLES, 1))])
    return folder
