"""Real searches in this process: the checkpoints that they leave, and what trials.csv and the page say of their epochs."""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from helpers.simulated_search import Killed, made_up, search
from helpers.training_here import attempt_here, share_store
from helpers.training_process import StopAfter

from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.config.paths import SearchPaths, StatePaths
from nnlo_lib.executors.progress import interrupted_fold_tasks
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.report.page import report_outcome
from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.study import trial as files
from nnlo_lib.search.study.storage import freeze_or_verify_settings, load_study, search_folder, write_config
from nnlo_lib.search.study.study import Study, run_study, waiting_tasks
from nnlo_lib.search.study.trial import FoldTask, read_result
from nnlo_lib.search.study.trial_summary import describe_epochs, summarize_trial
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.workflow.cost_table import FILES_OF_FOLD

SMALL: dict[str, Any] = {
    "name": "disk",
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 4, "batch_size": 200, "optimizer": {"name": "adam", "lr": 0.01}},
    "parallel": {"ranks": 1, "transport": "simulated"},
    "checkpoint": {"every": "1 epoch"},
    "search": {
        "space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]}},
        "trials": 4, "parallel": 1, "method": {"name": "random"},
        "fidelity": {"name": "asha", "first": 1, "factor": 2},
    },
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    share_store(tmp_path)
    # As each rank does, whose sums then have one order.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


class TrainsHere:
    """Executor that trains one fold task after the other in this process, and looks at the checkpoints after each."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self._experiment, self._folder = experiment, folder
        self._queue: list[FoldTask] = []
        self.seen: list[tuple[FoldTask, int]] = []

    def start(self, fold_task: FoldTask) -> None:
        self._queue.append(fold_task)

    def wait(self) -> bool:
        task = self._queue.pop(0)
        make = lambda each, _: attempt_here(each)  # noqa: E731
        assert train_fold_task(self._experiment, self._folder, task, LaunchOptions(), make) == 0
        self.seen.append((task, count_checkpoints(task.run_folder(self._folder))))
        return True


def count_checkpoints(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("rank-*.safetensors"))


def searched(name: str = "disk", **changes: Any) -> TrainsHere:
    """Run the search to its end, or continue it; return its executor."""
    # A changed `name` would reset its section.
    experiment = Experiment.model_validate(merge_settings(SMALL, changes) | {"name": name})
    folder = search_folder(experiment)
    experiment = freeze_or_verify_settings(folder, experiment)
    write_config(experiment)
    trains = TrainsHere(experiment, folder)
    assert run_study(Study.of(folder, experiment), trains)
    return trains


def outcome(name: str) -> tuple[dict[str, str], dict[FoldTask, list[float]], dict[str, bytes]]:
    """Return decisions, losses and published weights of a search."""
    paths = SearchPaths(Path("results", name, "search"))
    known = load_study(paths.folder).snapshot
    losses = {task: [row["val_loss"] for row in result.rows] for task, result in known.results.items()}
    weights = {
        str(path.relative_to(paths.folder)): path.read_bytes()
        for path in paths.trials.rglob("model.safetensors")
    }
    return {path.name: path.read_text() for path in paths.trials.glob("*.json")}, losses, weights


@pytest.mark.long("two searches of seven trials are trained")
def test_a_search_leaves_no_checkpoints_and_more_trials_still_give_the_same_bits(here: Path) -> None:
    began = searched()
    for task, left in began.seen:
        assert left == (task.epochs < 4), (
            task
        )  # a paused fold needs its newest checkpoint, a trained one none
    assert count_checkpoints(here / "results/disk") == 0
    before = {
        trial for trial in range(4) if read_result(search_folder_of("disk"), FoldTask(trial, 0, 4)) is None
    }
    continued = searched(search={"trials": 7})
    assert before & {task.trial for task, _ in continued.seen}, (
        "no old trial is promoted: the test shows nothing"
    )
    assert count_checkpoints(here / "results/disk") == 0
    searched("undisturbed", search={"trials": 7})
    assert outcome("disk") == outcome("undisturbed")


def search_folder_of(name: str) -> Path:
    return Path("results", name, "search")


def killed(path: Path, ignore_errors: bool) -> None:
    """Stand in for shutil.rmtree in a process that is killed as soon as it has a folder to remove."""
    if path.exists():
        raise Killed


def test_a_failed_fold_keeps_no_checkpoint_and_a_kill_while_they_are_removed_leaves_none_for_good(
    here: Path,
) -> None:
    """With a learning rate of 1e30, the loss is no number after the first checkpoint."""
    changes: Any = {"space": {"train.optimizer.lr": [0.01, 1e30]}, "trials": 2, "fidelity": {"first": 2}}
    with patch.object(files, "shutil", SimpleNamespace(rmtree=killed)), pytest.raises(Killed):
        searched(search=changes)
    assert list(here.rglob("dropped")), "killed between the rename and the removal"
    trains = searched(search=changes)
    states = [trial.state for trial in load_study(search_folder_of("disk")).trial_summaries]
    assert "failed" in states
    assert all(left == 0 for task, left in trains.seen if read_status(task) == "failed")
    assert not [*here.rglob("rank-*.safetensors"), *here.rglob("dropped")]


def read_status(task: FoldTask) -> str:
    return str(json.loads(task.result_path(search_folder_of("disk")).read_text())["status"])


def test_a_stopped_search_names_what_it_interrupted_and_lost(here: Path) -> None:
    """Seven steps an epoch; the stop after 17 calls saves, and is then made a kill by the removal of checkpoints."""
    experiment = Experiment.model_validate(
        SMALL | {"search": SMALL["search"] | {"fidelity": {"name": "full"}}}
    )
    folder = search_folder(experiment)
    assert interrupted_fold_tasks(folder) == ""
    write_config(freeze_or_verify_settings(folder, experiment))
    decision = Study.of(folder, experiment).decide()
    assert decision
    stopped = lambda each, _: attempt_here(each, StopAfter(17))  # noqa: E731
    assert train_fold_task(experiment, folder, decision.task, LaunchOptions(), stopped) == 75
    reached, where = (
        read_attempts(StatePaths(decision.task.run_folder(folder) / "state").folder)[-1].reached,
        "1 fold task interrupted (trial 0 fold 0 after epoch 2 of 4)",
    )
    assert interrupted_fold_tasks(folder).startswith(
        f"{where}; trained since their last checkpoints, and lost: 0 steps"
    )
    for path in here.rglob("checkpoints"):
        path.rename(path.with_name("gone"))
    assert f"lost: 2 epochs and {reached} steps" in interrupted_fold_tasks(folder)


def test_table_and_page_name_the_best_epochs_and_for_how_long_the_best_is_retrained(here: Path) -> None:
    only = {"train.optimizer.lr": [0.05]}
    searched(
        search={"space": only, "fidelity": {"name": "full"}, "folds": {"k": 2}, "method": {"name": "grid"}}
    )
    folder = search_folder_of("disk")
    assert report_outcome(folder) == 0
    results = [read_result(folder, FoldTask(0, fold, 4)) for fold in (0, 1)]
    losses = [[row["val_loss"] for row in result.rows] for result in results if result]
    best = [each.index(min(each)) + 1 for each in losses]
    (row,) = csv.DictReader(SearchPaths(folder).table.open())
    assert [row["best_epoch_0"], row["best_epoch_1"], row["epochs"]] == [str(best[0]), str(best[1]), "4"]
    assert float(row["objective"]) == pytest.approx(sum(map(min, losses)) / 2)
    text = re.sub(r"<[^>]+>|\s+", " ", SearchPaths(folder).report.read_text())
    mean = int(sum(best) / 2 + 0.5)
    assert (
        f"best epoch ({best[0]}, {best[1]} in the best trial); the best trial is retrained for their mean, {mean} epochs"
        in text
    )
    files = [path for path in FoldTask(0, 1, 4).run_folder(folder).rglob("*") if path.is_file()]
    assert 0.7 * FILES_OF_FOLD < len(files) < 1.1 * FILES_OF_FOLD, "the estimate of `nnlo plan`"
    assert f"\n  epochs: {mean}\n" in SearchPaths(folder).best.read_text()


@pytest.mark.parametrize(
    ("epoch", "worst", "doubt"), [("best", 9, True), ("best", 4, False), ("last", 9, False)]
)
def test_folds_whose_best_epochs_do_not_agree_get_a_line(epoch: str, worst: int, doubt: bool) -> None:
    """The loss of fold 0 is best after 3 epochs, that of fold 1 after `worst`."""
    known = made_up(search(folds={"k": 2}, objective={"epoch": epoch}), {(0, 9): [1.0, 1.0]})
    rows = {
        task: replace(
            result,
            rows=tuple({**row, "val_loss": abs(row["epoch"] - (3, worst)[task.fold])} for row in result.rows),
        )
        for task, result in known.results.items()
    }
    told = describe_epochs(known.search.objective, summarize_trial(replace(known, results=rows), 0))
    assert ("do not agree: one stops at epoch 3, another at epoch 9" in told) == doubt
    assert (f"(3, {worst} in the best trial)" in told) == (epoch == "best")


def test_a_budget_that_ends_a_search_keeps_what_a_larger_one_would_continue() -> None:
    """Of four trials at the first rung, ASHA promotes the best two, then one of these; the others cannot be continued."""
    wanted = search(fidelity={"name": "asha", "first": 3, "factor": 2}, trials=4)
    known = made_up(wanted, {(0, 3): [0.4], (1, 3): [0.3], (2, 3): [0.2], (3, 3): [0.1]}, epochs=6)
    assert waiting_tasks(known, build_pruner(wanted.fidelity)) == {FoldTask(2, 0, 6), FoldTask(3, 0, 6)}
    assert known.rungs(2) == [3], "the snapshot is unchanged"
