"""Programs that run the GPU all-reduces of each rank on vectors in host memory, because no GPU is available."""

import torch

from nnlo_lib.comm.gpu.cuda_aware import CudaAwareAllreduce, is_cuda_aware
from nnlo_lib.comm.gpu.nccl import NcclAllreduce


def vector(rank, dtype="float32", size=1003):
    """Return a rank's vector; the scale grows with the rank, so the last bits of a sum depend on the order."""
    draw = torch.Generator().manual_seed(rank)
    return torch.randn(size, generator=draw, dtype=getattr(torch, dtype)) * 10.0**rank


def finish(begun, comm):
    begun(lambda done: comm._progress.poll(done, "an all-reduce", 1e-3))


def sums(comm, way):
    """Return, for each vector, whether the overlapping GPU all-reduces equal those through host memory bit for bit."""
    how = NcclAllreduce(comm, 20, backend="gloo") if way == "nccl" else CudaAwareAllreduce(comm.duplicate())
    same = []
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


def allreduced(comm, way):
    """Return whether `comm.allreduce` of an OnGpu vector gives the same bits and counts the expected bytes."""
    comm._gpu_allreduce = (
        NcclAllreduce(comm, 20, backend="gloo") if way == "nccl" else CudaAwareAllreduce(comm.duplicate())
    )
    ours = vector(comm.rank).as_subclass(OnGpu)
    reference = vector(comm.rank)
    before = comm.bytes_sent["gradient"]
    comm.allreduce(ours)
    between = comm.bytes_sent["gradient"]
    comm.allreduce(reference)
    counted = between - before, 2 * reference.nbytes * (comm.size - 1) // comm.size
    return [bool((ours.as_subclass(torch.Tensor) == reference).all()), counted[0] == counted[1]]


def again(comm):
    """Return the sum of NCCL's own all-reduce in a second process group, as in a later trial, and `is_cuda_aware()`."""
    NcclAllreduce(comm, 20, backend="gloo")
    fastest = NcclAllreduce(comm, 20, fastest=True, backend="gloo")
    ours = torch.full((7,), float(comm.rank + 1))
    finish(fastest.begin(ours), comm)
    return [ours.tolist(), is_cuda_aware()]
