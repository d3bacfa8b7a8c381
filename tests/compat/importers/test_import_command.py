"""The command line of `nnlo import`."""

import pytest
from helpers.nnlo_command import nnlo


@pytest.mark.parametrize(
    "words",
    [
        ["mpirun -np 3 TrainingDriver --model cifar10 --loss mse --epochs 7"],
        ["mpirun", "-np", "3", "TrainingDriver", "--model", "cifar10", "--loss", "mse", "--epochs", "7"],
        [
            "--",
            "mpirun",
            "-np",
            "3",
            "TrainingDriver",
            "--model",
            "cifar10",
            "--loss",
            "mse",
            "--epochs",
            "7",
        ],
    ],
)
def test_one_string_or_words(words):
    done = nnlo("import", *words)
    assert done.returncode == 0, done.stderr
    assert "\n  epochs: 7  # --epochs 7\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "COMMAND: missing"),
        (["TrainingDriver --epochz 3"], "TrainingDriver: unknown option --epochz; did you mean 'epochs'?"),
    ],
)
def test_mistakes(words, sentence):
    done = nnlo("import", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"nnlo: error: {sentence}")
