"""Device of each rank, and sums of vectors on GPUs.

These tests need no GPU. A stub of torch.cuda counts GPUs, and the sums run on CPUs: gloo replaces NCCL. The
tests do not check the computation on a GPU.
"""

import socket
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from helpers.run_on_ranks import on_ranks
from pydantic import ValidationError

from nnlo_lib.comm.gpu_allreduce import NcclAllreduce
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.parallel import ParallelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process import visible_gpus
from nnlo_lib.train.replica import device as exchange
from nnlo_lib.train.replica.device import evaluation_device, select_device
from nnlo_lib.workflow.plan import Plan

SCHEDULERS = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "NNLO_GPUS")


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets the number of GPUs and the environment, e.g. `machine(4, SLURM_JOB_GPUS="0,1")`."""

    def make(count, **environment):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        for name in SCHEDULERS:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return make


def devices(ranks, hosts=None, servers=0, **parallel):
    """Return the device of each rank; `hosts`: of each rank, by default one; `servers`: number of first ranks."""
    settings = ParallelConfig(ranks=ranks, gpus_per_rank=1, **parallel)
    names = hosts or ["here"] * ranks

    def program(comm):
        elsewhere = _Elsewhere(comm, names, settings.transport == "simulated")
        return select_device(elsewhere, settings, comm.rank >= servers)

    return SimulatedWorld(ranks).run(program)


@dataclass
class _Elsewhere:
    """Communicator that reports the given host name for each rank."""

    comm: object
    names: list
    is_virtual: bool

    @property
    def rank(self):
        return self.comm.rank

    def gather(self, item):
        everyone = self.comm.gather(item)
        assert {host for host, _ in everyone} == {socket.gethostname()}
        return [[name, has_gpu] for name, (_, has_gpu) in zip(self.names, everyone, strict=True)]


DEVICES = {
    "GPUs of a host in turn": (2, {"ranks": 4, "hosts": ["a", "b", "a", "b"]}, [0, 0, 1, 1]),
    "several ranks of a GPU": (2, {"ranks": 6, "ranks_per_gpu": 3}, [0, 0, 0, 1, 1, 1]),
    "a server without": (2, {"ranks": 3, "servers": 1, "master_gpu": False}, [None, 0, 1]),
    "a server with": (3, {"ranks": 3, "servers": 1}, [0, 1, 2]),
    "the only one that is shown": (1, {"ranks": 4}, [0] * 4),
    "simulated ranks": (2, {"ranks": 4, "transport": "simulated"}, [0] * 4),
}


@pytest.mark.parametrize("case", DEVICES)
def test_device_of_each_rank(machine, case):
    gpus, settings, wanted = DEVICES[case]
    machine(gpus)
    assert devices(**settings) == ["cpu" if number is None else f"cuda:{number}" for number in wanted]


def test_too_few_gpus_are_refused(machine):
    machine(2)
    message = r"rank 2 on here needs GPU 2, but 2 are visible \(counted from 0\); increase"
    with pytest.raises(UserError, match=message):
        devices(3)


@pytest.mark.parametrize(
    ("gpus", "trained_on", "device"), [(0, 0, "cpu"), (0, 1, "cpu"), (2, 0, "cpu"), (2, 1, "cuda:0")]
)
def test_a_model_is_evaluated_on_the_device_of_its_training_if_the_machine_has_it(
    machine, gpus, trained_on, device
):
    machine(gpus)
    assert evaluation_device(ParallelConfig(gpus_per_rank=trained_on)) == device


GRANTED = {
    "all": ({}, [0, 1, 2, 3]),
    "what torch was shown": ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_JOB_GPUS": "1"}, [0, 1, 2, 3]),
    "a part of a shared node": ({"SLURM_JOB_GPUS": "1,3"}, [1, 3]),
    "of the step": ({"SLURM_STEP_GPUS": "2", "SLURM_JOB_GPUS": "1,2"}, [2]),
    "so many": ({"SLURM_GPUS_ON_NODE": "2"}, [0, 1]),
    "numbers of the whole node, others hidden": ({"SLURM_JOB_GPUS": "4,5,6,7"}, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("case", GRANTED)
def test_what_the_scheduler_gave(machine, case):
    environment, wanted = GRANTED[case]
    machine(4, **environment)
    assert visible_gpus() == wanted


def run_of(algorithm="allreduce", ranks=4, **parallel):
    settings = {
        "algorithm": {"name": algorithm},
        "parallel": {"ranks": ranks, "gpus_per_rank": 1, **parallel},
    }
    return Plan.of(Experiment.model_validate(settings)).run(algorithm)


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        ({}, (4, 1)),
        ({"ranks_per_gpu": 2}, (2, 2)),
        ({"ranks_per_gpu": 3}, (2, 0)),
        ({"algorithm": "downpour"}, (4, 1)),
        ({"algorithm": "downpour", "master_gpu": False}, (3, 0)),
        ({"transport": "simulated"}, (1, 1)),
        ({"gpus_per_rank": 0}, (0, 0)),
    ],
)
def test_what_the_scheduler_is_asked_for(run, wanted):
    resources = RunResources(run_of(**run))
    assert (resources.gpus, resources.tasks_per_gpu) == wanted


# Sums of vectors on GPUs, by gloo in place of NCCL


def vector(rank, dtype="float32", size=1003):
    """Return a rank's vector; the scale grows with the rank, so the last bits of a sum depend on the order."""
    draw = torch.Generator().manual_seed(rank)
    return torch.randn(size, generator=draw, dtype=getattr(torch, dtype)) * 10.0**rank


def finish(begun, comm):
    begun(lambda done: comm._progress.poll(done, "an all-reduce", 1e-3))


def sums(comm):
    """Return, for each vector, whether the overlapping GPU all-reduces equal those through host memory bit for bit."""
    how, same = NcclAllreduce(comm, 200, backend="gloo"), []
    for dtype in ("float32", "float64"):
        ours = [vector(comm.rank + 10 * turn, dtype, size) for turn, size in enumerate((1003, 2, 5000))]
        reference = [each.clone() for each in ours]
        for begun in [how.begin(each) for each in ours]:
            finish(begun, comm)
        for each in reference:
            comm.allreduce(each)
        same += [torch.equal(*pair) for pair in zip(ours, reference, strict=True)]
    return same


class OnGpu(torch.Tensor):
    """A vector in host memory with `is_cuda` set."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl


def allreduced(comm):
    """Return whether `comm.allreduce` of an OnGpu vector gives the same bits and counts the expected bytes."""
    comm._gpu_allreduce = NcclAllreduce(comm, 200, backend="gloo")
    ours, reference = vector(comm.rank).as_subclass(OnGpu), vector(comm.rank)
    before = comm.bytes_sent["gradient"]
    comm.allreduce(ours)
    counted, halves = comm.bytes_sent["gradient"] - before, vector(comm.rank).as_subclass(OnGpu)
    comm.reduce_scatter(halves)
    comm.allgather(halves)
    comm.allreduce(reference)
    same = all(bool((each.as_subclass(torch.Tensor) == reference).all()) for each in (ours, halves))
    return [same, counted == 2 * reference.nbytes * (comm.size - 1) // comm.size]


def again(comm):
    """Return the sum of NCCL's own all-reduce in a second process group, as in a later trial."""
    NcclAllreduce(comm, 200, backend="gloo")
    fastest = NcclAllreduce(comm, 200, fastest=True, backend="gloo")
    ours = torch.full((7,), float(comm.rank + 1))
    finish(fastest.begin(ours), comm)
    return ours.tolist()


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_sums_have_the_bits_of_those_through_host_memory(ranks):
    for same in on_ranks(sums, "mpi", ranks):
        assert same == [True] * 6


@pytest.mark.mpi
def test_a_communicator_takes_that_way_for_what_is_on_gpus():
    assert on_ranks(allreduced, "mpi", 2) == [[True, True]] * 2


@pytest.mark.mpi
def test_a_later_trial_makes_a_group_of_its_own():
    assert on_ranks(again, "mpi", 3) == [[6.0] * 7] * 3


@pytest.fixture
def exchanged(monkeypatch):
    """Return a function from GPU of each rank, NCCL and setting to the calls of NCCL and the text of the log."""

    def choose(names, nccl, **setting):
        calls = []
        monkeypatch.setattr(exchange, "unique_gpu_name", lambda device: device)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
        comm = SimpleNamespace(
            size=len(names), is_virtual=False, gather=lambda item: [[name, *item[1:]] for name in names],
            sum_by_nccl=lambda timeout, fastest: calls.append(fastest),
        )  # fmt: skip
        return calls, exchange.select_gpu_transport(comm, run_of(ranks=2, **setting), "x")

    return choose


@pytest.mark.parametrize(
    ("names", "nccl", "setting", "wanted"),
    [
        (["a 0", "a 1"], True, "auto", "NCCL"),
        (["a 0", "a 1"], True, "nccl", "NCCL"),
        (["a 0", "a 1"], True, "host", "host memory"),
        (["a 0", "a 1"], False, "auto", "host memory"),
        (["a 0", "a 0"], True, "auto", "host memory"),  # a shared GPU
        (["", "a 0"], True, "auto", "host memory"),  # a server without GPU
    ],
)
def test_the_best_way_is_taken(exchanged, names, nccl, setting, wanted):
    calls, text = exchanged(names, nccl, gpu_exchange=setting)
    assert (calls, text) == ([False] if wanted == "NCCL" else [], f"through {wanted}")


def test_a_way_that_is_not_there_is_refused(exchanged):
    with pytest.raises(UserError, match="gpu_exchange: nccl: torch has no NCCL"):
        exchanged(["a 0", "a 1"], False, gpu_exchange="nccl")


def test_without_gpus_there_is_nothing_to_choose():
    assert exchange.select_gpu_transport(None, run_of(gpus_per_rank=0), "cpu") == ""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ranks_per_gpu": 2, "gpu_exchange": "nccl"}, "nccl requires one GPU per rank"),
        ({"gpus_per_rank": 0, "gpu_exchange": "nccl"}, "nccl requires GPUs"),
        ({"gpu_exchange": "cuda_aware"}, "sums by a CUDA-aware MPI are no longer possible; set nccl, host or auto"),
    ],
)  # fmt: skip
def test_a_way_that_does_not_fit_the_settings_is_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        run_of(**settings)
