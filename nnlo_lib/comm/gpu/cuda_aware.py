"""Sums over GPUs through a CUDA-aware MPI, which reads and writes GPU memory."""

import ctypes
import os

import torch
from mpi4py import MPI
from torch import Tensor

from nnlo_lib.comm.gpu.reduce import GpuAllreduce, IsDone

# The site or the user sets one of these environment variables to 1.
CUDA_AWARE_VARIABLES = (
    "MPICH_GPU_SUPPORT_ENABLED",
    "MV2_USE_CUDA",
    "I_MPI_OFFLOAD",
)
GPU_SUPPORT_QUERIES = ("MPIX_Query_cuda_support", "MPIX_Query_rocm_support")


class CudaAwareAllreduce(GpuAllreduce):
    """All-reduce that passes the GPU addresses of vectors to MPI.

    Args:
        comm: an MPI communicator that nothing else uses.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        super().__init__(comm.Get_size())
        self._comm = comm

    def all_to_all(self, received: Tensor, sent: Tensor) -> IsDone:
        _settle(sent)
        return self._comm.Ialltoall(sent, received).Test

    def all_gather(self, received: Tensor, sent: Tensor) -> IsDone:
        _settle(sent)
        return self._comm.Iallgather(sent, received).Test


def _settle(vector: Tensor) -> None:
    """Wait until the GPU has written `vector`, because MPI ignores CUDA streams."""
    if vector.is_cuda:
        torch.cuda.current_stream(vector.device).synchronize()


def is_cuda_aware() -> bool:
    """Return True if MPI reports that it reads GPU memory."""
    if any(os.environ.get(name) == "1" for name in CUDA_AWARE_VARIABLES):
        return True
    # The lookup in mpi4py's extension module also searches the MPI library that it is linked with. Not every
    # library has these queries.
    library = ctypes.CDLL(MPI.__file__)
    return any(getattr(library, query)() == 1 for query in GPU_SUPPORT_QUERIES if hasattr(library, query))
