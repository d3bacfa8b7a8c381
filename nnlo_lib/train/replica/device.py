"""Device of a rank, and the transport that sums GPU vectors over ranks, the same one on all ranks."""

import os
import socket

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.config.parallel import ParallelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process import visible_gpus
from nnlo_lib.data.readers.base import Array


def select_device(comm: Communicator, parallel: ParallelConfig, is_worker: bool = True) -> str:
    """Return `cpu`, or this rank's GPU as `cuda:N` from the GPUs that it can use; all ranks call it.

    The ranks of a host use its GPUs in order, `ranks_per_gpu` ranks per GPU. A rank that can use only one
    GPU uses this one. Simulated ranks all use the first GPU. A server uses a GPU only if `master_gpu` is set.
    """
    if not parallel.gpus_per_rank:
        return "cpu"
    has_gpu = is_worker or parallel.master_gpu
    # Ranks without GPU take part in the gather; their entries do not count below.
    hosts = comm.gather([socket.gethostname(), has_gpu])
    if not has_gpu:
        return "cpu"
    before = hosts[: comm.rank].count(hosts[comm.rank])
    place = 0 if comm.is_virtual else before // parallel.ranks_per_gpu
    gpus = visible_gpus()
    if len(gpus) == 1:  # A scheduler may show each rank only its own GPU.
        return f"cuda:{gpus[0]}"
    if place >= len(gpus):
        raise UserError(
            f"rank {comm.rank} on {hosts[comm.rank][0]} needs GPU {place}, but {len(gpus)} are visible (counted from 0); increase "
            "parallel.ranks_per_gpu, use more nodes, or set parallel.gpus_per_rank: 0 to train on CPUs"
        )
    return f"cuda:{gpus[place]}"


def use_reproducible_kernels() -> None:
    """Let torch compute the same bits in each run on a GPU of the same kind; it warns of an operation that cannot."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # A training reads no memory before it writes it: filling new memory costs a kernel for each tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def evaluation_device(parallel: ParallelConfig) -> str:
    """Return the device for one process that evaluates a trained model: a visible GPU if it was trained on GPUs."""
    gpus = visible_gpus() if parallel.gpus_per_rank else []
    # A cluster may evaluate a model in a job without GPUs.
    return f"cuda:{gpus[0]}" if gpus else "cpu"


def to_device(array: Array | Tensor, device: str) -> Tensor:
    """Return an array as a tensor on the device, where a tensor is already; a GPU copies it while this process continues."""
    if isinstance(array, Tensor):
        # A part of a batch begins at the alignment of a copy, by which libraries choose kernels.
        return array.clone() if array.storage_offset() else array
    tensor = torch.from_numpy(array)
    # Only from page-locked memory does a copy not wait for the work that the GPU has left.
    return tensor if device == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def seed_step(seed: int, device: str) -> None:
    """Seed torch's generator of `device`, which dropout uses (torch.manual_seed is slower)."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.cuda.manual_seed(seed)


def select_gpu_transport(comm: Communicator, run: Run, device: str) -> str:
    """Let `comm` sum GPU vectors, if any, as `parallel.gpu_exchange` configures; return how, for the log. All ranks call it."""
    if not run.parallel.gpus_per_rank or comm.is_virtual:
        return ""
    setting = run.parallel.gpu_exchange
    is_possible = False
    if setting != "host":
        ranks = comm.gather([unique_gpu_name(device), torch.distributed.is_nccl_available()])
        # NCCL does not support two ranks on one GPU.
        is_possible = len({gpu for gpu, _ in ranks if gpu}) == comm.size and all(known for _, known in ranks)
    if is_possible:
        comm.sum_by_nccl(run.parallel.peer_timeout, fastest=not run.algorithm.sums_in_rank_order)
        return "through NCCL"
    if setting == "nccl":
        raise UserError(
            "parallel.gpu_exchange: nccl: torch has no NCCL, or ranks share a GPU or have no GPU; use auto or host"
        )
    return "through host memory"


def unique_gpu_name(device: str) -> str:
    """Return a globally unique name of a GPU (host and UUID); an empty string for a CPU."""
    if device == "cpu":
        return ""
    return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"
