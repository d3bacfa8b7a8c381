"""`nnlo run` with another number of ranks: downpour and adpsgd refuse what cannot be shared out again, with status 2."""

import hashlib

import pytest
import yaml
from helpers.nnlo_command import nnlo_process
from helpers.training_process import StopAfter

from nnlo_lib.config import merge_settings
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.workflow.single_run import prepare_task

SETTINGS = {
    "name": "t",
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 2},
    "parallel": {"ranks": 5, "transport": "simulated"},
}
DOWNPOUR = {"algorithm": {"name": "downpour"}}
CASES = {
    "adpsgd": (
        {"algorithm": {"name": "adpsgd"}, "topology": {"name": "path"}},
        "each rank of adpsgd has a state that other ranks cannot take over",
    ),
    "downpour with separate samples": (
        DOWNPOUR | {"data": {"partition": {"name": "by_class"}}},
        "its workers have separate samples (data.partition)",
    ),
    "downpour with a number of steps": (
        DOWNPOUR | {"train": {"steps_per_epoch": 4}},
        "with train.steps_per_epoch, the samples of an epoch depend on the number of workers",
    ),
    "downpour with compression": (
        DOWNPOUR | {"compression": {"name": "sign"}},
        "each rank keeps the error feedback of its compressed vectors",
    ),
    "downpour in groups": (
        DOWNPOUR | {"parallel": {"processes_per_worker": 2}},
        "a worker consists of several ranks (parallel.processes_per_worker)",
    ),
    "downpour with several masters": (
        {"algorithm": {"name": "downpour", "masters": 2}},
        "it has several servers (algorithm.masters)",
    ),
}


def files(folder):
    """Return the digests of all files of the checkpoints."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("checkpoints/*/*")
    }


@pytest.mark.processes
@pytest.mark.parametrize(("changes", "reason"), CASES.values(), ids=CASES)
def test_another_number_of_ranks_is_refused_and_the_checkpoint_stays(tmp_path, monkeypatch, changes, reason):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(merge_settings(SETTINGS, changes)))
    experiment = load_experiment(path)
    task = prepare_task(experiment, experiment.algorithm.name, 0, None)
    assert not train_simulated(task, StopAfter(12))
    saved = files(tmp_path)
    assert saved
    path.write_text(path.read_text().replace("ranks: 5", "ranks: 7"))
    done = nnlo_process("run", "t.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(
        f"was written by 5 ranks and cannot resume with 7: {reason}; use 5 ranks, or delete {task.folder}/state to start again"
    )
    assert files(tmp_path) == saved
