"""Rank groups of one allocation: a lost group costs one attempt, and a training leaves no state to the next."""

import json

import pytest
from helpers.killed_searches import Search

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import MpiPoolConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.mpi_pool import coordinator
from nnlo_lib.executors.mpi_pool.pool_launcher import NoGroupLeftError, allocation_size, restart_until_done
from nnlo_lib.executors.mpi_pool.world import ASSIGN_TAG, REPORT_TAG
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.search.study.trial import FoldTask, Result, read_result, read_trials

NET = """
import os
import signal
import torch

def build(shape, classes, ends="well"):
    return Net(shape, classes, ends)

class Net(torch.nn.Sequential):
    def __init__(self, shape, classes, ends):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(shape[0] * shape[1] * shape[2], classes))
        self.ends = ends

    def forward(self, images):
        # Not in the check before the search.
        if self.ends == "killed" and self.training and "PMI_RANK" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)
"""
SETTINGS = {
    "model": {"name": "net.py:build"}, "train": {"epochs": 2, "batch_size": 16}, "parallel": {"ranks": 1},
    "checkpoint": {"every": "1 epoch"}, "seeds": [7],
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(("groups", "lost"), [(2, [2]), (1, [1, 1])])
def test_a_training_that_ends_two_rank_groups_has_failed_and_nothing_else_is_lost(tmp_path, groups, lost):
    """All other trainings finish; without a rank group left, all ranks restart."""
    (tmp_path / "net.py").write_text(NET)
    space, blocks = {"model.args.ends": ["killed", "well"]}, {"size": 1, "silence": 60}
    section = {"space": space, "method": {"name": "grid"}, "parallel": groups, "blocks": blocks}
    search = Search(tmp_path, "t", "mpi", SETTINGS | {"search": section}).prepare()
    assert search.start().wait(600) == 1, search.said  # a trial is lost
    assert (tmp_path / "t.said").read_text().count("restarting all ranks") == len(lost) - 1
    folder = tmp_path / "results/t/search"
    table = (folder / "state/blocks.jsonl").read_text().splitlines()
    assert [json.loads(line)["lost"] for line in table] == lost
    ends = {
        each.point["model.args.ends"]: read_result(folder, each.decisions[-1].task)
        for each in read_trials(folder)
    }
    assert ends["well"].status == "finished"
    assert ends["killed"].status == "failed"
    assert "2 rank groups were lost" in ends["killed"].error


class OneRankGroups:
    """Rank groups of one rank without MPI: a fold task of a deadly trial ends its rank, others report a result."""

    def __init__(self, groups, deadly):
        self.groups, self.size, self.ranks, self.messenger = range(groups), 1, groups + 1, self
        self._deadly, self._dead, self._reports = deadly, set(), []
        self.handed = []

    def members(self, group):
        return range(1 + group, 2 + group)

    def ended_ranks(self, ranks):
        return [rank for rank in ranks if rank in self._dead]

    def describe_rank(self, rank):
        return f"rank {rank}"

    def send(self, item, to, tag):
        if tag == ASSIGN_TAG:
            self.handed.append(item[0])
            if item[0] in self._deadly:
                self._dead.add(to)
            else:
                self._reports.append((to, [0, "", 0.0, 1.0, False]))

    def receive(self, source, tag):
        return self._reports.pop(0) if tag == REPORT_TAG and self._reports else None


@pytest.fixture
def coordinate(tmp_path, monkeypatch):
    """Return a function that trains trials in rank groups: the assigned trials, and whether a rank group was left."""
    monkeypatch.setattr(coordinator, "LIVENESS_CHECK_INTERVAL_S", 0.0)
    (tmp_path / "state").mkdir()

    def done(trials, groups, deadly):
        world = OneRankGroups(groups, deadly)
        driven = coordinator.Coordinator(world, tmp_path, MpiPoolConfig(), 1, lambda: False)
        fold_tasks = [FoldTask(trial, 0, 1) for trial in range(trials)]
        for fold_task in fold_tasks:
            if not read_result(tmp_path, fold_task):
                fold_task.run_folder(tmp_path).mkdir(parents=True, exist_ok=True)
                driven.start(fold_task)
        try:
            while driven._queue or driven._busy:
                driven.wait()
                for fold_task in fold_tasks:
                    if fold_task.trial in world.handed and fold_task.trial not in deadly:
                        Result(fold_task, "finished").write(tmp_path)
        except NoGroupLeftError:
            return world.handed, False
        return world.handed, True

    return done


def test_a_deadly_training_gets_the_last_rank_group_only_when_nothing_else_is_left(coordinate, tmp_path):
    assert coordinate(5, 2, {1}) == ([0, 1, 2, 3, 4, 1], True)
    assert read_result(tmp_path, FoldTask(1, 0, 1)).status == "failed"


def test_losses_of_rank_groups_are_counted_over_all_allocations(coordinate, tmp_path):
    assert coordinate(4, 1, {0}) == ([0], False)
    assert coordinate(4, 1, {0}) == ([1, 2, 3, 0], True)
    assert "2 rank groups were lost" in read_result(tmp_path, FoldTask(0, 0, 1)).error


@pytest.mark.parametrize(
    ("came", "stopped", "starts"),
    [
        ([(0, 0)], False, 1),  # no progress
        ([(0, 1), (0, 2), (0, 3)], False, 3),  # only losses
        ([(0, 1), (1, 2), (1, 3), (1, 4), (1, 5)], False, 5),  # a result resets the count of losses
        ([(1, 1), (1, 1)], False, 2),
        ([(1, 0), (2, 0), (3, 0)], True, 1),  # after a signal
    ],
)
def test_all_ranks_restart_as_long_as_they_make_progress(came, stopped, starts):
    known = iter([(0, 0), *(each for each in came for _ in range(2))])
    begun = []

    def die():
        begun.append(1)
        raise NoGroupLeftError("no rank group is left; the last loss: rank 1 has ended")

    with pytest.raises(UserError, match="run the same command again to resume"):
        restart_until_done(die, lambda: next(known), lambda: stopped)
    assert len(begun) == starts


@pytest.mark.parametrize(
    ("ranks", "words"), [(8, "use 7 or 10"), (3, "use 4 or 7"), (1, "use 4 or 7"), (7, ""), (13, "")]
)
def test_an_allocation_has_one_coordinator_and_whole_rank_groups(ranks, words):
    search = {"space": {"train.optimizer.lr": [1.0]}, "blocks": {"size": 3}}
    experiment = Experiment.model_validate({"search": search})
    assert experiment.parallel.ranks == 3
    if not words:
        assert allocation_size(experiment, ranks) == ranks
    else:
        with pytest.raises(UserError, match=words):
            allocation_size(experiment, ranks)


def test_rank_groups_need_trainings_of_their_size_with_real_ranks(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("parallel: {ranks: 2}\nsearch:\n  space: {train.batch_size: [1]}\n  blocks: {size: 3}\n")
    words = r"t.yaml:4: search.blocks.size: a rank group of 3 cannot train with `parallel.ranks: 2`"
    with pytest.raises(UserError, match=words):
        load_experiment(path)
    settings = {"parallel": {"transport": "simulated"}, "search": {"space": {"train.batch_size": [1]}}}
    with pytest.raises(UserError, match="simulated is not supported by --executor mpi"):
        allocation_size(Experiment.model_validate(settings), 3)
