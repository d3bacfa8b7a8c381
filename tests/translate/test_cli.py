"""`nnlo import` as it is typed."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def nnlo(*words: str) -> "subprocess.CompletedProcess[str]":
    code = f"import sys; sys.argv[0] = 'nnlo'; sys.path.insert(0, {str(REPOSITORY)!r}); from nnlo_lib.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "import", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
    done = nnlo(*words)
    assert done.returncode == 0, done.stderr
    assert "\n  epochs: 7  # --epochs 7\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "import what?"),
        (["TrainingDriver --epochz 3"], "TrainingDriver has no option --epochz; did you mean 'epochs'?"),
    ],
)
def test_mistakes(words, sentence):
    done = nnlo(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"nnlo: error: {sentence}")
