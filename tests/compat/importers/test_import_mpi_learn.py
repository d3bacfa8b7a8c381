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


EASGD = "mpirun -np 3 MPIDriver.py m.json a.list b.list --mode easgd --loss mse"


def test_rate_and_momentum_of_easgd_are_those_of_the_workers(imported):
    """Before, the comment said that the launcher never uses these options, and the rate became 1."""
    experiment, text = imported(f"{EASGD} --elastic-lr 0.1 --elastic-momentum=0.9 --elastic-force 0.8")
    rule = experiment.train.optimizer
    assert (rule.name, rule.lr, rule.momentum, rule.nesterov) == ("sgd", 0.1, 0.9, True)
    assert experiment.algorithm.elastic_force == 0.8
    assert "never uses" not in text
    usual, _ = imported(EASGD)
    assert (usual.train.optimizer.lr, usual.train.optimizer.momentum) == (1.0, 0.0)


def test_rate_of_easgd_with_another_optimizer_or_mode_is_named(imported):
    _, text = imported(f"{EASGD} --elastic-lr 0.1 --worker-optimizer adam")
    assert "--elastic-lr 0.1 (mpi_learn reads it only with --worker-optimizer sgd)" in " ".join(
        text.replace("#", "").split()
    )
    _, text = imported(f"{EASGD} --elastic-lr 0.1 --mode sgd")
    assert "--elastic-lr 0.1: not translated because it scales the gradients" in " ".join(
        text.replace("#", "").split()
    )


def test_nnlo_never_uses_them(imported):
    experiment, text = imported(
        f"{EASGD.replace('MPIDriver.py m.json a.list b.list', 'TrainingDriver --model mnist')} --elastic-lr 0.1"
    )
    assert experiment.train.optimizer.name == "adam"
    assert "--elastic-lr 0.1: the original NNLO stores this value and never uses it" in " ".join(
        text.replace("#", "").split()
    )


def test_two_programs_named_mpigdriver_differ(imported):
    experiment, text = imported("mpirun -np 3 MPIGDriver.py m.json a.list b.list --easgd --elastic-lr 0.1")
    assert experiment.train.optimizer.lr == 0.1
    assert "--elastic-lr 0.1: read as by mpi_learn's MPIGDriver; NNLO's" in " ".join(
        text.replace("#", "").split()
    )
