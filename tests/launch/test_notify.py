"""The user's command `observe.notify`: when it runs, what it receives, and that its failure changes nothing."""

import pytest
from helpers.training_here import training_here

from nnlo_lib.launch import attempt
from nnlo_lib.launch.attempt import notify

pytestmark = pytest.mark.processes
COMMAND = 'echo "$NNLO_EVENT|$NNLO_MESSAGE|$NNLO_FOLDER" >> {file}'


def test_a_training_reports_a_stop_and_its_end_unless_snakemake_does(tmp_path, monkeypatch):
    file = tmp_path / "events.txt"
    monkeypatch.delenv("NNLO_SESSION", raising=False)  # of a workflow's test in this process
    run = training_here(
        tmp_path, model={"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}, train={"epochs": 2, "batch_size": 50},
        observe={"notify": COMMAND.format(file=file)},
    )  # fmt: skip
    run.finish(expect=75, calls=10)
    run.finish()
    run.finish()  # has finished before
    monkeypatch.setenv("NNLO_SESSION", "now")
    (run.job / "model.safetensors").unlink()
    run.finish()
    name = f"t/{run.job.relative_to(tmp_path / 'results/t')}"
    assert file.read_text().splitlines() == [
        f"{event}|{name}: {event}|{run.job}" for event in ("preempted", "finished")
    ]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("exit 3", "status 3"),
        ("sleep 100", "no end within"),
        ("/no/program", "status 127"),
        (None, ""),
        ("true", ""),
    ],
)
def test_a_command_that_fails_is_a_warning(tmp_path, monkeypatch, capsys, command, problem):
    monkeypatch.setattr(attempt, "NOTIFY_TIMEOUT_S", 10.0 if problem != "no end within" else 0.01)
    notify(command, "failed", "message", tmp_path)
    warning = capsys.readouterr().err
    assert problem in warning
    assert bool(problem) == ("the training is not affected" in warning)
