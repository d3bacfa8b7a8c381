"""Simultaneous trainings on a machine with several GPUs use different GPUs.

The tests need no GPU: a stand-in of torch.cuda returns the number of GPUs. Locks and assignment are the real code.
"""

import json
import os
import signal
import tempfile
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch

from nnlo_lib.comm.simulated.communicator import SimulatedWorld as Ranks
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.process import GPU_SUBSET
from nnlo_lib.executors import gpu_slots, trial_job
from nnlo_lib.executors.gpu_slots import reserve_gpus, warn_if_gpus_are_few
from nnlo_lib.executors.mpi_pool.worker import GroupTrainer, assign_gpus, gpus_of_group, run_task
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.trial import FoldTask, SchedulingDecision, Trial, write_trial
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.train.replica.device import select_device

NAMES = (
    GPU_SUBSET, "CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_ID", "LSB_JOBID"
)  # fmt: skip


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that simulates a machine with its own locks: `machine(4)` has four GPUs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(gpu_slots, "time", None)  # waiting fails unless a test replaces `time`
    for name in NAMES:
        monkeypatch.setenv(name, "")  # makes monkeypatch restore the variable after the test
        monkeypatch.delenv(name)
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.fixture
def while_waiting(monkeypatch):
    """Return a function that sets what happens at each check of a training that waits; without it, SIGTERM arrives."""

    def set_event(event=lambda: os.kill(os.getpid(), signal.SIGTERM)):
        monkeypatch.setattr(gpu_slots, "time", SimpleNamespace(sleep=lambda seconds: event()))

    return set_event


def experiment(algorithm="allreduce", **parallel):
    return Experiment.model_validate(
        {
            "name": "x",
            "algorithm": {"name": algorithm},
            "parallel": {"ranks": 1, "gpus_per_rank": 1} | parallel,
            "search": {"space": {"train.optimizer.lr": [0.1, 0.2]}},
        }
    )


def devices(run):
    """Return the device that each rank of a training selects in the current environment."""
    parallel = run.parallel
    masters = 0 if parallel.master_gpu else run.algorithm.masters
    is_simulated = parallel.transport == "simulated"

    def device_of(comm):
        # The test simulates MPI ranks, too, so the flag must follow the configuration.
        comm.is_virtual = is_simulated
        return select_device(comm, parallel, comm.rank >= masters)

    return Ranks(1 if is_simulated else parallel.ranks).run(device_of)


def side_by_side(run, count):
    """Return the devices of `count` simultaneous trainings."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            # Each training has its own environment, and keeps its locks until all have selected devices.
            with ExitStack() as process:
                process.enter_context(pytest.MonkeyPatch.context()).delenv(GPU_SUBSET, raising=False)
                assert stack.enter_context(reserve_gpus(run))
                found.append(devices(run))
        return found


@pytest.mark.parametrize(
    ("gpus", "settings", "expected"),
    [
        (4, {}, [["cuda:0"], ["cuda:1"], ["cuda:2"], ["cuda:3"]]),
        (4, {"ranks": 2}, [["cuda:0", "cuda:1"], ["cuda:2", "cuda:3"]]),
        (4, {"ranks": 3, "transport": "simulated"}, [["cuda:0"], ["cuda:1"]]),
        (2, {"ranks_per_gpu": 2}, [["cuda:0"], ["cuda:1"], ["cuda:0"], ["cuda:1"]]),
        (
            4,
            {"ranks": 3, "ranks_per_gpu": 2},
            [["cuda:0", "cuda:0", "cuda:1"], ["cuda:2", "cuda:2", "cuda:3"]],
        ),
    ],
)
def test_simultaneous_trainings_use_different_gpus_or_share_them_evenly(machine, gpus, settings, expected):
    machine(gpus)
    assert side_by_side(experiment(**settings), len(expected)) == expected


def test_visible_gpus_of_the_user_are_kept_and_locked_by_their_names(machine, monkeypatch):
    machine(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with reserve_gpus(experiment()):
        machine(2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
        assert side_by_side(experiment(), 1) == [["cuda:1"]], "3 is taken"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,2"


def test_jobs_of_a_scheduler_do_not_share_locks(machine, monkeypatch):
    machine(1)
    for job in ("7", "8"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        assert reserve_gpus(experiment()).__enter__()


def test_a_training_waits_for_a_gpu(machine, while_waiting, capsys):
    machine(1)
    first, checks = reserve_gpus(experiment()), []
    assert first.__enter__()

    def release_at_the_third_check():
        checks.append(1)
        if len(checks) == 3:
            first.__exit__(None, None, None)

    while_waiting(release_at_the_third_check)
    with reserve_gpus(experiment()) as has_gpus:
        assert has_gpus
    assert len(checks) == 3
    assert capsys.readouterr().err.count("waiting for 1 of 1 GPUs") == 1


def test_a_signal_ends_the_wait_for_a_gpu_and_the_handlers_are_restored(machine, while_waiting):
    machine(1)
    before = signal.getsignal(signal.SIGTERM)
    while_waiting()
    with reserve_gpus(experiment()), reserve_gpus(experiment()) as has_gpus:
        assert not has_gpus
    assert signal.getsignal(signal.SIGTERM) is before
    with reserve_gpus(experiment()) as has_gpus:
        assert has_gpus, "all locks are released"


def test_a_large_training_is_not_overtaken_for_ever(machine, while_waiting):
    """If a training of two GPUs waits first, a later training of one GPU waits, too, although one GPU is free."""
    machine(2)
    order = []

    def start_another():
        order.append("the small training waits, too")
        while_waiting()
        with reserve_gpus(experiment()) as has_gpus:
            order.append(has_gpus)
        os.kill(os.getpid(), signal.SIGTERM)

    while_waiting(start_another)
    with reserve_gpus(experiment()), reserve_gpus(experiment(ranks=2)) as has_gpus:
        assert not has_gpus
    assert order == ["the small training waits, too", False]


def test_a_folder_that_takes_no_locks_is_named(machine, monkeypatch):
    machine(1)
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(UserError, match=r"/proc/nowhere/.*set TMPDIR"), reserve_gpus(experiment()):
        pass


def test_a_search_with_too_few_gpus_is_warned(machine, capsys):
    machine(2)
    warn_if_gpus_are_few(experiment())
    assert "2 GPUs are visible, enough for 2 of 4 simultaneous trainings" in capsys.readouterr().err
    warn_if_gpus_are_few(experiment(ranks_per_gpu=2))
    machine(4)
    warn_if_gpus_are_few(experiment())
    assert not capsys.readouterr().err


@pytest.fixture
def search(tmp_path):
    """Return the folder of a search that has decided on one fold task."""
    folder = tmp_path / "search"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(experiment().model_dump(mode="json")))
    write_trial(
        folder, Trial(0, {"train.optimizer.lr": 0.1}, (SchedulingDecision(0, FoldTask(0, 0, 3), ()),))
    )
    return folder


def test_fold_tasks_reserve_gpus_in_a_process_and_in_a_slurm_job(machine, search, monkeypatch):
    machine(2)
    found = []
    job = TrialJob(search, FoldTask(0, 0, 3), "mpiexec", 1)

    def train(*_):
        found.append(devices(experiment()))
        monkeypatch.delenv(GPU_SUBSET)
        return 0 if len(found) == 2 else job()

    monkeypatch.setattr(trial_job, "train_fold_task", train)
    assert trial_job.train_trial(search, FoldTask(0, 0, 3), LaunchOptions(wait_for_lease=True)) == 0
    assert found == [["cuda:0"], ["cuda:1"]]


def test_a_fold_task_that_is_stopped_while_it_waits_has_trained_nothing(
    machine, search, monkeypatch, while_waiting
):
    machine(1)
    monkeypatch.setattr(trial_job, "train_fold_task", None)
    while_waiting()
    options = LaunchOptions(wait_for_lease=True)
    with reserve_gpus(experiment()):
        assert trial_job.train_trial(search, FoldTask(0, 0, 3), options) == EXIT_PREEMPTED


def world(rank, size, hosts):
    """Return a stand-in for one rank of an allocation with rank groups of `size` ranks; hosts[0] is the coordinator's."""
    return SimpleNamespace(
        rank=rank, group=(rank - 1) // size, groups=range((len(hosts) - 1) // size),
        processes=[SimpleNamespace(host=host) for host in hosts],
        members=lambda group: range(1 + group * size, 1 + (group + 1) * size),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "size", "gpus", "hosts", "expected"),
    [
        ({}, 1, 4, "aaaaa", [[0], [1], [2], [3]]),
        ({"ranks": 2}, 2, 4, "aaaaa", [[0, 1]] * 2 + [[2, 3]] * 2),
        ({"ranks": 2}, 2, 2, "aabba", [[0], [0], [1], [1]]),
        ({"ranks_per_gpu": 2}, 1, 2, "aaaaa", [[0], [1], [0], [1]]),
        ({"ranks": 3, "ranks_per_gpu": 2}, 3, 4, "a" * 7, [[0, 1]] * 3 + [[2, 3]] * 3),
        ({"ranks": 3, "master_gpu": False}, 3, 4, "a" * 7, [[0, 1]] * 3 + [[2, 3]] * 3),
    ],
)
def test_rank_groups_on_a_host_take_different_gpus(settings, size, gpus, hosts, expected):
    settings = experiment("downpour" if "master_gpu" in settings else "allreduce", **settings)
    ranks = range(1, len(hosts))
    assert [gpus_of_group(world(rank, size, hosts), settings, [*range(gpus)]) for rank in ranks] == expected


def test_a_rank_group_without_gpus_ends_the_search_with_the_reason(machine):
    machine(2)
    assert assign_gpus(world(2, 1, "aaaa"), experiment()) == ""
    assert devices(experiment()) == ["cuda:1"]
    os.environ.pop(GPU_SUBSET)
    fault = assign_gpus(world(3, 1, "aaaa"), experiment())
    assert "rank group 2 (of 3, numbered from 0) needs 1 GPU on a, but too few of the 2" in fault
    trainer = GroupTrainer.__new__(GroupTrainer)
    trainer._fault = fault
    assert run_task(trainer, FoldTask(0, 0, 3)) == (EXIT_USER_ERROR, fault)


def test_a_rank_that_is_shown_one_gpu_keeps_it(machine):
    machine(1)
    assert assign_gpus(world(3, 1, "aaaa"), experiment()) == ""
    assert devices(experiment()) == ["cuda:0"]
