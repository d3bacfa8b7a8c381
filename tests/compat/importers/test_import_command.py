"""The command line of `nnlo import`."""

import pytest
import yaml
from helpers.nnlo_command import nnlo

COMMAND = "mpirun -np 3 TrainingDriver --model cifar10 --loss mse --epochs 7"


@pytest.mark.parametrize("words", [[COMMAND], COMMAND.split(), ["--", *COMMAND.split()]])
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


def test_a_partial_import_ends_with_a_count_and_its_own_status():
    done = nnlo("import", "mpirun -np 3 TrainingDriver --model mnist --loss mse --copy-command cp")
    line = "1 of 4 options was not translated: --copy-command cp"
    assert done.returncode == 3
    assert done.stdout.endswith(f"# {line}\n")
    assert line in done.stderr
    assert yaml.safe_load(done.stdout)["parallel"] == {"ranks": 3, "gpus_per_rank": "auto"}
