"""Which settings of precision and speed go with which algorithm."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.problem import UserProblemConfig

KeyedReason = tuple[str, tuple[str, ...]]  # and the key to point at


def precision_faults(run: Any) -> Iterator[KeyedReason]:
    """Yield why a run (config.Run) cannot be computed in its precision."""
    name, train, row = run.algorithm.name, run.train, run.algorithm.capabilities
    if train.accumulate > train.batch_size:
        yield f"a batch of {train.batch_size} has no {train.accumulate} parts", ("train", "accumulate")
    if train.clip_norm is not None and row.step == "algorithm's":
        yield f"{name} has no optimizer whose step could be clipped; leave it out", ("train", "clip_norm")
    if train.compile and run.problem.name == "gan":
        yield "the networks of a gan are called one by one, not as a compiled whole", ("train", "compile")
    if train.precision == "fp16":
        yield from _half_faults(run, name)
    if run.parallel.sync_batch_norm:
        yield from _batch_norm_faults(run, name)
    if run.parallel.transport == "simulated" and run.parallel.simulation.compute == "batched":
        yield from _batched_faults(run)
    yield from _gpu_faults(run.parallel)


def _half_faults(run: Any, name: str) -> Iterator[KeyedReason]:
    at = ("train", "precision")
    if run.algorithm.capabilities.keeps_gradients:
        yield f"{name} goes on from gradients, infinite ones included, that fp16 would skip; use bf16", at
    elif run.algorithm.capabilities.shares_gradient and not isinstance(run.compression, NoCompressionConfig):
        yield (
            "an infinite gradient, which fp16 would skip, would stay in the compression's errors; use bf16",
            at,
        )


def _batch_norm_faults(run: Any, name: str) -> Iterator[KeyedReason]:
    at = ("parallel", "sync_batch_norm")
    if not run.algorithm.capabilities.shares_gradient:
        yield f"the ranks of {name} do not compute one step's gradient together; allreduce does", at
    if run.model.is_network_file:
        yield f"cannot see into {run.model.name}; leave it out", at
    if run.train.compile:
        yield "a compiled model cannot wait for other ranks in the middle; leave one of the two out", at


def _batched_faults(run: Any) -> Iterator[KeyedReason]:
    plain = {
        "precision": run.train.precision in ("float32", "float64"),
        "accumulate": run.train.accumulate == 1,
        "compile": not run.train.compile,
    }
    for key, is_plain in plain.items():
        if not is_plain:
            yield "simulation.compute: batched has gradients of its own; use exact", ("train", key)
    if isinstance(run.problem, UserProblemConfig):
        yield "simulation.compute: batched supports built-in problems only; use exact", ("problem", "name")
    if run.model.is_network_file:
        yield f"simulation.compute: batched cannot see into {run.model.name}; use exact", ("model", "name")
    if run.parallel.sync_batch_norm:
        yield "simulation.compute: batched normalizes by rank; use exact", ("parallel", "sync_batch_norm")


def _gpu_faults(parallel: Any) -> Iterator[KeyedReason]:
    how, at = parallel.gpu_exchange, ("parallel", "gpu_exchange")
    if how in ("nccl", "cuda_aware") and not parallel.gpus_per_rank:
        yield f"{how} moves what is on GPUs; set parallel.gpus_per_rank: 1", at
    if how == "nccl" and parallel.ranks_per_gpu > 1:
        yield "NCCL needs a GPU for each rank; use ranks_per_gpu: 1, or host", at
