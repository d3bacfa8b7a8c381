"""Imported commands of the original projects train for some steps, mostly on real images."""

import csv
import gzip
import json
import math
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import fork_server
from helpers.repository_copy import REPOSITORY, environment
from helpers.requires import absent

from nnlo_lib.compat.importers.translate import import_experiment

KERAS = REPOSITORY / "tests/models/keras/mnist_keras2.json"
SHORT = ("train.epochs=1", "train.steps_per_epoch=20")
NNLO = "mpirun -np 3 TrainingDriver --model {} --loss categorical_crossentropy --epochs 3"
SESSION = "RULE={}\nMODELFILE=theanompi.models.{}\nMODELCLASS={}\nDEVICES=cuda0,cuda1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return the folder in which all tests run, so that data are converted once."""
    return tmp_path_factory.mktemp("imported")


@pytest.fixture
def trained(folder, monkeypatch) -> Callable[..., dict[str, float]]:
    """Return a function that imports a command and trains the experiment with changes.

    It returns the last row of the history and the number of parameters.
    """
    monkeypatch.chdir(folder)

    def last(words: str, *changes: str, command: str = "run") -> dict[str, float]:
        Path("imported.yaml").write_text(import_experiment([words]).text)
        nnlo = [*fork_server.nnlo(), command, "imported.yaml"]
        options = [word for change in (*SHORT, *changes) for word in ("--set", change)]
        done = subprocess.run(
            [*nnlo, *options], env=environment(), capture_output=True, text=True, timeout=800, check=False
        )
        assert done.returncode == 0, done.stderr
        newest = max(Path("results").glob("*/*/*/history.csv"), key=lambda path: path.stat().st_mtime_ns)
        with newest.open(newline="") as file:
            *_, row = csv.DictReader(file)
        assert math.isfinite(float(row["val_loss"]))
        summary = json.loads((newest.parent / "summary.json").read_text())
        numbers = {key: float(value) for key, value in row.items()}
        return numbers | {"parameters": summary["model"]["parameters"]}

    return last


@pytest.fixture
def mnist(shared_data) -> tuple[str, ...]:
    return (f"data.source={shared_data / 'mnist'}",)


@pytest.fixture
def cifar10(shared_data) -> tuple[str, ...]:
    """Return changes that select the archive with a part of CIFAR-10, which lacks the official checksum."""
    source = shared_data / "cifar10/cifar-10-binary.tar.gz"
    return "data.dataset=cifar10-small", "data.reader={name: cifar}", f"data.source={source}"


@pytest.mark.real
@pytest.mark.mpi
def test_nnlo_mnist(trained, mnist):
    row = trained(NNLO.format("mnist"), *mnist)
    assert row["parameters"] == 600_810
    assert row["val_accuracy"] > 0.5


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_nnlo_lists(trained, lists):
    row = trained(f"{NNLO.format('mnist')} {lists}", "train.batch_size=20")
    assert row["parameters"] == 600_810
    assert row["val_accuracy"] > 0.3


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_nnlo_cifar10(trained, cifar10):
    assert trained(NNLO.format("cifar10"), *cifar10)["parameters"] == 1_916_266


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_mpi_learn_mnist(trained, lists, folder):
    if find_spec("keras") is None:
        absent("no Keras")
    (folder / "mnist_arch.json").write_bytes(KERAS.read_bytes())
    command = "mpirun -np 3 ./MPIDriver.py mnist_arch.json train_mnist.list test_mnist.list --loss categorical_crossentropy"
    row = trained(f"{command} --epochs 3", "train.batch_size=20")
    assert row["parameters"] == 600_810
    assert row["val_accuracy"] > 0.3


@pytest.fixture(scope="module")
def lists(folder, shared_data) -> str:
    """Write the files of NNLO's get_mnist.py and return the options that name their lists.

    The HDF5 files hold images of shape (n, 28, 28, 1) and one-hot labels.
    """
    raw = shared_data / "mnist"
    images = np.frombuffer(gzip.decompress((raw / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((raw / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    images, one_hot = images.reshape(-1, 28, 28, 1) / np.float32(255), np.eye(10, dtype="f4")[labels]
    for name, numbers in {"train": range(3), "test": range(3, 4)}.items():
        for number in numbers:
            part = slice(400 * number, 400 * (number + 1))
            with h5py.File(folder / f"mnist_{number}.h5", "w") as file:
                file["features"], file["labels"] = images[part], one_hot[part]
        (folder / f"{name}_mnist.list").write_text("".join(f"mnist_{number}.h5\n" for number in numbers))
    return f"--train_data {folder}/train_mnist.list --val_data {folder}/test_mnist.list"


PYDTNN = (
    "mpirun -np 4 python3 -u benchmarks_CNN.py --model=simplecnn --dataset=mnist --validation_split=0.2 "
    "--optimizer=Adam --learning_rate=0.1 --loss_func=categorical_accuracy,categorical_cross_entropy "
    "--lr_schedulers=early_stopping,reduce_lr_on_plateau --num_epochs=50 --parallel=data"
)


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_pydtnn(trained, mnist):
    row = trained(PYDTNN, *mnist, "parallel.ranks=2")
    assert row["parameters"] == 149_210  # the README's table: no padding
    assert row["val_accuracy"] > 0.3


@pytest.mark.exhaustive
@pytest.mark.mpi
@pytest.mark.parametrize("rule", ["BSP", "EASGD"])
def test_theano_mpi(trained, cifar10, folder, rule):
    (folder / "session.cfg").write_text(SESSION.format(rule, "cifar10", "Cifar10_model"))
    row = trained("session.cfg", *cifar10, "parallel.gpus_per_rank=0", "train.steps_per_epoch=4")
    assert row["parameters"] == 351_946
    assert row["learning_rate"] == pytest.approx(0.02 * (1 / 2 + 1 / 2 * 3 / 20) if rule == "BSP" else 0.01)


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_showers(trained, folder):
    """The GAN trains on files in the format of NNLO's get_3d.py, with random showers."""
    random = np.random.default_rng(0)
    for name in ("train", "test_1"):
        cells = random.random((32, 25, 25, 25, 1), dtype="f4") ** 8
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["X"] = cells
            labels = {"a": np.ones(32), "b": random.uniform(0.1, 5, 32), "c": cells.sum(axis=(1, 2, 3, 4))}
            for key, values in labels.items():
                file[f"y/{key}"] = values.astype("f4")
        (folder / f"{name}_3d.list").write_text(f"{name}.h5\n")
    row = trained(
        "mpirun -tag-output -n 3 python3 MPIGDriver.py dummy.json train_3d.list test_1_3d.list --loss dummy --epochs 5 "
        "--features-name X --labels-name y --mode easgd --worker-optimizer rmsprop --checkpoint ganGP --checkpoint-int 1",
        "train.batch_size=4", "train.steps_per_epoch=1",
    )  # fmt: skip
    assert math.isfinite(row["val_critic_loss"])
