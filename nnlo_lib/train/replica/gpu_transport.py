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
    "nccl": "torch has no NCCL, or ranks share a GPU or have no GPU; use auto or host",
    "cuda_aware": "neither MPI (MPIX_Query_cuda_support) nor MPICH_GPU_SUPPORT_ENABLED=1 declares that MPI reads GPU "
    "memory, or a rank has no GPU; use auto or host",
}


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
    available = _available_transports(comm, device)
    if setting in UNAVAILABLE_REASON and setting not in available:
        raise UserError(f"parallel.gpu_exchange: {setting}: {UNAVAILABLE_REASON[setting]}")
    chosen = available[0] if setting == "auto" else setting
    fastest = not run.algorithm.sums_in_rank_order
    comm.use_gpu_reduction(chosen, run.parallel.peer_timeout, fastest)
    return TRANSPORT_TEXT[chosen]


def _available_transports(comm: Communicator, device: str) -> list[str]:
    """Return the transports that are available on all ranks, the best one first."""
    from nnlo_lib.comm.gpu.cuda_aware import is_cuda_aware

    ranks = comm.gather([unique_gpu_name(device), torch.distributed.is_nccl_available(), is_cuda_aware()])
    gpus = [gpu for gpu, _, _ in ranks if gpu]
    # NCCL does not support two ranks on one GPU.
    one_each = len(set(gpus)) == comm.size
    ways = {
        "nccl": one_each and all(nccl for _, nccl, _ in ranks),
        "cuda_aware": len(gpus) == comm.size and all(cuda_aware for _, _, cuda_aware in ranks),
        "host": True,
    }
    return [way for way, is_available in ways.items() if is_available]


def unique_gpu_name(device: str) -> str:
    """Return a globally unique name of a GPU (host and UUID); an empty string for a CPU."""
    if device == "cpu":
        return ""
    return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"
