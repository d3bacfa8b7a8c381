"""Choice of the transport that sums GPU vectors over ranks; all ranks choose the same one."""

import socket

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError


def select_gpu_transport(comm: Communicator, run: Run, device: str) -> str:
    """Let `comm` sum GPU vectors as `parallel.gpu_exchange` configures; all ranks call it.

    Args:
        comm: communicator of the ranks.
        run: configuration of the run.
        device: device of this rank, `cpu` or `cuda:N`.

    Returns:
        Description of the transport for the log; an empty string if no GPU vectors are exchanged.

    Raises:
        UserError: if the configured transport is not available.
    """
    if not run.parallel.gpus_per_rank or comm.is_virtual:
        return ""
    setting = run.parallel.gpu_exchange
    if setting != "host" and _supports_nccl(comm, device):
        comm.sum_by_nccl(run.parallel.peer_timeout, fastest=not run.algorithm.sums_in_rank_order)
        return "through NCCL"
    if setting == "nccl":
        raise UserError(
            "parallel.gpu_exchange: nccl: torch has no NCCL, or ranks share a GPU or have no GPU; use auto or host"
        )
    return "through host memory"


def _supports_nccl(comm: Communicator, device: str) -> bool:
    """Return True if each rank has NCCL and a GPU of its own; NCCL does not support two ranks on one GPU."""
    ranks = comm.gather([unique_gpu_name(device), torch.distributed.is_nccl_available()])
    return len({gpu for gpu, _ in ranks if gpu}) == comm.size and all(has_nccl for _, has_nccl in ranks)


def unique_gpu_name(device: str) -> str:
    """Return a globally unique name of a GPU (host and UUID); an empty string for a CPU."""
    if device == "cpu":
        return ""
    return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"
