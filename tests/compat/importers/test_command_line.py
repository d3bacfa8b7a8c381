"""Launchers, interpreters and shells around a command, and refusal of texts that are no command."""

import pytest

from nnlo_lib.compat.importers.command_line import parse_command


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 4 prog.py -a b",
        "mpiexec -n 4 --bind-to core -x PATH --hostfile h python3 -u /some/where/prog.py -a b",
        "srun --ntasks=4 -N 2 python prog.py -a b",
        "srun -n4 ./prog -a b",
        "srun -n 4 -c 7 prog -a b",
        "jsrun -n 4 -c 7 prog -a b",
        "mpirun -c 4 prog -a b",
        "$ mpirun -np 4 \\\n  prog -a \\\n b",
    ],
)
def test_launchers(command):
    line = parse_command([command])
    assert (line.program, line.words, line.ranks) == ("prog", ("-a", "b"), 4)


def test_words_as_a_shell_gives_them():
    line = parse_command(["mpirun", "-np", "2", "prog.py", "--early", "val_loss,~<,4"])
    assert (line.words, line.ranks) == (("--early", "val_loss,~<,4"), 2)
    assert "'val_loss,~<,4'" in line.text


def test_environment():
    assert parse_command(["OMP_NUM_THREADS=3 prog"]).threads == 3
    assert parse_command(["export OMP_NUM_THREADS=2\nmpirun -np 2 prog"]).threads == 2


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("mpirun --hostfil h prog", "unknown launcher option --hostfil; did you mean 'hostfile'?"),
        ("mpirun -np four prog", "-np: expected a non-negative integer, got 'four'"),
        ("mpirun -np 3", "the command has no program"),
        ("'unclosed", "cannot parse the command (No closing quotation)"),
        ("", "expected one command, got 0"),
        ("prog\nprog", "expected one command, got 2"),
        (
            "mpirun -np 3 TrainngDriver",
            "unknown program 'TrainngDriver'; did you mean 'TrainingDriver'?",
        ),
        ("gone.yaml", "file not found: gone.yaml"),
        ("python dist_mnist_ex.py gone.yaml", "cannot read the experiment file gone.yaml"),
    ],
)
def test_mistakes(refused, command, sentence):
    assert sentence in refused(command)
