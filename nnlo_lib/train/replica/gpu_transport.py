"""Choice of the transport that sums GPU vectors over ranks; all ranks choose the same one."""

import socket

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError

TRANSPORT_TEXT = {
    "nccl": "through NCCL",
    "cuda_aware": "through an MPI that reads GPU memory",
    "host": "through host memory",
}
UNAVAILABLE_REASON = {
    "nccl": "torch has no NCCL here, or ranks share a GPU or have none; use auto or host",
    "cuda_aware": "neither MPI (MPIX_Query_cuda_support) nor MPICH_GPU_SUPPORT_ENABLED says that GPU memory can be "
    "given to it; use auto or host",
}


def select_gpu_transport(comm: Communicator, run: Run, device: str) -> str:
    """Let `comm` sum GPU vectors as `parallel.gpu_exchange` says; all ranks call it.

    Return a description of the transport for the log, or an empty string if no GPU vectors are exchanged.

    Raises:
        UserError: if the configured transport is not available.
    """
    if not run.parallel.gpus_per_rank or comm.is_virtual:
        return ""
    setting = run.parallel.gpu_exchange
    able = _able(comm, device)
    if setting in UNAVAILABLE_REASON and setting not in able:
        raise UserError(f"parallel.gpu_exchange: {setting}: {UNAVAILABLE_REASON[setting]}")
    chosen = able[0] if setting == "auto" else setting
    fastest = not run.algorithm.sums_in_rank_order
    comm.use_gpu_reduction(chosen, run.parallel.peer_timeout, fastest)
    return TRANSPORT_TEXT[chosen]


def _able(comm: Communicator, device: str) -> list[str]:
    """Return the transports that are available on all ranks, the best one first."""
    from nnlo_lib.comm.gpu.cuda_aware import is_cuda_aware

    everyone = comm.gather([unique_gpu_name(device), torch.distributed.is_nccl_available(), is_cuda_aware()])
    gpus = [gpu for gpu, _, _ in everyone if gpu]
    one_each = len(set(gpus)) == comm.size
    ways = {
        "nccl": one_each and all(nccl for _, nccl, _ in everyone),
        "cuda_aware": len(gpus) == comm.size and all(aware for _, _, aware in everyone),
        "host": True,
    }
    return [way for way, is_there in ways.items() if is_there]


def unique_gpu_name(device: str) -> str:
    """Return a globally unique name of a GPU (host and UUID); an empty string for a CPU."""
    if device == "cpu":
        return ""
    return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"
