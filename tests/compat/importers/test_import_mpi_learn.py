"""Import of the commands in mpi_learn's README."""

import pytest


def test_mnist(imported):
    experiment, text = imported(
        "mpirun -np 3 ./MPIDriver.py mnist_arch.json train_mnist.list test_mnist.list --loss categorical_crossentropy --epochs 3"
    )
    assert (experiment.algorithm.name, experiment.algorithm.sync_every) == ("downpour", 1)
    assert experiment.train.optimizer.name == "adam"  # the optimizer of mpi_learn's master
    assert (experiment.train.epochs, experiment.train.batch_size, experiment.parallel.ranks) == (3, 100, 3)
    assert (experiment.data.reader.train, experiment.data.reader.validation) == (
        "train_mnist.list",
        "test_mnist.list",
    )
    assert experiment.loss == "cross_entropy"
    assert experiment.model.name == "nnlo_mnist"  # the replacement if mnist_arch.json does not exist
    assert "only the server applies an optimizer" in " ".join(text.replace("#", "").split())


@pytest.mark.parametrize(
    "command",
    [
        "git clone https://github.com/duanders/mpi_learn.git",
        "python BuildModel.py mnist",
        "python models/get_mnist.py",
    ],
)
def test_preparations_are_no_training(refused, command):
    assert "is not a training command" in refused(command)


def test_its_names_of_options(imported):
    experiment, _ = imported(
        "mpirun -np 9 MPIDriver.py m.json a.list b.list --masters 3 --processes=2 --mode easgd --loss mse"
    )
    assert (experiment.algorithm.masters, experiment.parallel.processes_per_worker) == (3, 2)


def test_missing_lists(refused):
    assert "the argument val_data is missing" in refused("mpirun -np 3 MPIDriver.py m.json a.list")
