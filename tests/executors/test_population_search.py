"""Population-based training with real trainings: weights of copied trials, kills at any point, and lost checkpoints."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import Killed
from helpers.training_here import share_store, simulate
from helpers.training_process import TIMINGS

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths, store_of
from nnlo_lib.core import failpoints
from nnlo_lib.executors import trial_job
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.best import write_outcome
from nnlo_lib.search.study import trial as files
from nnlo_lib.search.study.storage import load_study, trial_run, write_config
from nnlo_lib.search.study.study import Study, run_study
from nnlo_lib.search.study.trial import FoldTask, Trial, read_trials
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task

SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "parallel": {"ranks": 1, "transport": "simulated"},
    "train": {"epochs": 3, "steps_per_epoch": 4, "batch_size": 64, "optimizer": {"name": "sgd"}},
    "checkpoint": {"every": "1 epoch", "keep": 1},
    "search": {
        "space": {
            "train.optimizer.lr": {"log_uniform": [1e-3, 1.0]},
            "train.optimizer.momentum": {"uniform": [0.0, 0.9]},
        },
        "method": {"name": "random"},
        "fidelity": {"name": "pbt", "population": 4},
        "parallel": 2,
        "order": "fixed",
    },
}  # fmt: skip


class TrainingInTurn:
    """Executor that trains in this process, the started fold tasks in random order; `train` trains one."""

    def __init__(self, seed: int, train: Callable[[FoldTask], Any]) -> None:
        self._draw, self._train = random.Random(seed), train
        self._started: list[FoldTask] = []

    def start(self, fold_task: FoldTask) -> None:
        self._started.append(fold_task)

    def wait(self) -> bool:
        self._train(self._started.pop(self._draw.randrange(len(self._started))))
        return True


def searched(folder: Path, **changes: Any) -> Experiment:
    """Return the experiment of a search in the working directory `folder`, whose settings are written."""
    share_store(folder)
    settings = SETTINGS | {"search": SETTINGS["search"] | changes, "name": "p"}
    experiment = Experiment.model_validate(settings)
    SearchPaths(folder / "results/p/search").folder.mkdir(parents=True)
    write_config(experiment)
    return experiment


def attempt(task: Task, _: LaunchOptions) -> AttemptOutcome:
    """Train without a launcher: nothing between a kill and the caller records an end."""
    try:
        assert train_simulated(task, StopFlag())
    except Exception as error:
        return AttemptOutcome("code error", str(error))
    return AttemptOutcome("finished")


def go_on(experiment: Experiment, seed: int = 0) -> Path:
    """Run the search, or continue it, to its end; return its folder."""
    folder = SearchPaths(Path("results/p/search").absolute()).folder

    def train(fold_task: FoldTask) -> None:
        assert trial_job.train_fold_task(experiment, folder, fold_task, LaunchOptions(), attempt) == 0

    assert run_study(Study.of(folder, experiment), TrainingInTurn(seed, train))
    return folder


def outcome(folder: Path) -> dict[str, Any]:
    """Return the trial files, the rows of all results without timings, and the checksums of the weights."""
    found: dict[str, Any] = {path.name: path.read_text() for path in sorted(folder.glob("trials/*.json"))}
    for path in sorted(folder.glob("trials/*/fold-*/epochs-*.json")):
        result = json.loads(path.read_text())
        rows = [{key: row[key] for key in row if key not in TIMINGS} for row in result["rows"]]
        found[str(path.relative_to(folder))] = result["status"], result["error"], rows
    for path in sorted(folder.glob("trials/*/fold-*/model.safetensors")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@contextmanager
def killed_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise Killed at the failpoint, file or folder with this number, and at each one after it."""
    left = iter(range(calls))

    def tick(*_: Any) -> None:
        if next(left, None) is None:
            raise Killed

    @contextmanager
    def writing(path: Path, replacing: Any = files.atomic_write) -> Iterator[Path]:
        with replacing(path) as part:
            yield part
            tick()
        tick()

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "_handlers", [tick])
        patched.setattr(files, "atomic_write", writing)
        for name in ("_link_or_copy", "fsync_folder"):
            original = getattr(trial_job, name)
            patched.setattr(
                trial_job, name, lambda *each, original=original: (tick(), original(*each), tick())
            )
        yield


@pytest.mark.long("trains 12 fold tasks twice, and again after kills")
def test_a_search_killed_anywhere_ends_with_the_bits_of_the_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("calm", "wild"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        experiment = searched(tmp_path / name)
        draw, kills = random.Random(3), 0
        while name == "wild" and kills < 12:
            with killed_after(draw.randrange(90), monkeypatch):
                try:
                    go_on(experiment, kills)
                except Killed:
                    kills += 1
                else:
                    break
        folder = go_on(experiment)
        assert not [*folder.glob("trials/*/fold-*/state/rungs/*")], (
            "no checkpoint is kept longer than it is needed"
        )
    assert kills >= 6
    assert outcome(tmp_path / "wild/results/p/search") == outcome(tmp_path / "calm/results/p/search")
    assert len([trial for trial in read_trials(folder) if trial.parent]) == 2
    # A resumed search, which has ended, writes the lineage of its best trial; its weights are published.
    write_outcome(folder)
    record = load_study(folder)
    best = record.snapshot.best_trial()
    text = SearchPaths(folder).best.read_text()
    assert best is not None
    assert (f"as trial {best}: train.optimizer.lr = " in text) == (len(record.snapshot.lineage(best)) > 1)


def by_hand(experiment: Experiment, folder: Path, trials: list[Trial], number: int, until: int) -> Task:
    """Train the second fold of a trial, that of a copied one from the edited checkpoint of its parent; return the task."""
    trial, run = trials[number], trial_run(experiment, trials[number].point)
    task = Task("p", "t", run, 0, 1, 2, store_of(run).manifest, folder / f"{number}-{until}", until)
    if trial.parent:
        parent = by_hand(experiment, folder, trials, trial.parent.trial, trial.parent.epochs)
        (saved,) = parent.paths.state.checkpoints.glob("0*")
        copy = shutil.copytree(saved, task.paths.state.checkpoints / "00000001")
        replace(CheckpointManifest.read(copy), key=task.fingerprint).write(copy)
    return simulate(task)


@pytest.mark.long("trains 12 fold tasks")
def test_a_copy_is_the_training_of_its_parent_resumed_with_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fidelity = {"name": "pbt", "population": 2, "quantile": 0.5}
    experiment = searched(tmp_path, fidelity=fidelity, folds={"k": 2}, parallel=4, order="as_finished")
    folder = go_on(experiment)
    trials = read_trials(folder)
    assert [trial.number for trial in trials if trial.parent] == [2, 3]
    own = files.read_result(folder, FoldTask(3, 1, 3))
    task = by_hand(experiment, tmp_path / "by_hand", trials, 3, 3)
    rows = [json.loads(line) for line in task.paths.state.history.read_text().splitlines()]
    assert own
    assert [row["val_loss"] for row in rows] == [row["val_loss"] for row in own.rows]
    assert len({row["val_loss"] for row in rows}) == 3
    model = SearchPaths(folder).fold(3, 1).model
    assert task.paths.model.read_bytes() == model.read_bytes()
    text = (folder / "trials/0003/fold-1/state/log.txt").read_text()
    assert "resumed at epoch 2, step 0 of " in text
    assert "warning" not in text


@pytest.mark.long("trains 12 fold tasks")
def test_a_lost_checkpoint_fails_the_copy_with_its_path_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment, lose = searched(tmp_path), trial_job.keep_for_children

    def keep_damaged(task: Task) -> None:
        lose(task)
        if task.ends_at == 1:
            path = task.paths.state.rungs / "1/rank-0.safetensors"
            content = bytearray(path.read_bytes())
            path.unlink()  # a link: the parent's own checkpoint stays as it is
            content[-1] ^= 1
            path.write_bytes(content)

    monkeypatch.setattr(trial_job, "keep_for_children", keep_damaged)
    folder = go_on(experiment)
    failed = files.read_result(folder, FoldTask(4, 0, 2))
    assert failed
    assert failed.status == "failed"
    assert "state/rungs/1: this training cannot start from the checkpoint: damaged: rank-0" in failed.error
    replaced = [trial.parent.replaces for trial in read_trials(folder) if trial.parent]
    assert 4 in replaced, "a failed copy is replaced at the next rung"
