"""Programs that each rank runs in the tests of the compressed all-reduce."""

import torch
from pydantic import TypeAdapter

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.comm.compression.compressed_allreduce import compressed_allreduce
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.comm.compression.factory import build_compressor
from nnlo_lib.config.compression import CompressionConfig

SEED, STEPS = 7, 3
KINDS = {
    "none": {"name": "none"},
    "fp16": {"name": "fp16"},
    "bf16": {"name": "bf16"},
    "top_k": {"name": "top_k", "fraction": 0.1},
    "random_k": {"name": "random_k", "fraction": 0.1},
    "qsgd-2": {"name": "qsgd", "bits": 2, "bucket": 16},
    "qsgd-5": {"name": "qsgd", "bits": 5, "bucket": 1000},
    "qsgd-8": {"name": "qsgd", "bits": 8, "bucket": 64},
    "sign": {"name": "sign"},
    "powersgd": {"name": "powersgd", "rank": 2},
}
CASES = [(kind, dtype, values) for kind in KINDS for dtype in ("float32", "float64") for values in (1, 1003)]


def make(kind: str) -> Compressor:
    return build_compressor(TypeAdapter(CompressionConfig).validate_python(KINDS[kind]), SEED)


def vector(rank: int, step: int, dtype: str, values: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(values, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))


def sums(comm: Communicator) -> list[dict[str, object]]:
    """Return, for each case, the compressed sums over ranks at each step and the bytes sent."""
    torch.set_num_threads(1)
    return [_sums(comm, *case) for case in CASES]


def _sums(comm: Communicator, kind: str, dtype: str, values: int) -> dict[str, object]:
    feedback, path = ErrorFeedback(make(kind), comm.rank), []
    before = comm.bytes_sent["gradient"]
    for step in range(STEPS):
        total = vector(comm.rank, step, dtype, values)
        compressed_allreduce(comm, feedback, total, "gradient")
        path.append(total.tolist())
    return {"path": path, "bytes": comm.bytes_sent["gradient"] - before}


def plain_sums(comm: Communicator, dtype: str, values: int) -> list[list[float]]:
    """Return the sums of the same vectors by the uncompressed all-reduce of the communicator."""
    path = []
    for step in range(STEPS):
        total = vector(comm.rank, step, dtype, values)
        comm.allreduce(total)
        path.append(total.tolist())
    return path
