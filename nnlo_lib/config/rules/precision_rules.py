"""Checks of the settings of precision and speed against the algorithm, the problem and the model."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.problem import UserProblemConfig


def precision_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) in settings of precision and speed."""
    name, train, row = run.algorithm.name, run.train, run.algorithm.capabilities
    if train.accumulate > train.batch_size:
        yield ConfigFault(
            f"a batch of {train.batch_size} samples cannot be divided into {train.accumulate} parts; "
            f"set `train.accumulate` to at most {train.batch_size}",
            ("train", "accumulate"),
        )
    if train.clip_norm is not None and row.step == "algorithm's":
        yield ConfigFault(
            f"{name} has no optimizer, so gradients cannot be clipped; remove `train.clip_norm`",
            ("train", "clip_norm"),
        )
    if train.compile and run.problem.name == "gan":
        yield ConfigFault(
            "not supported for a gan, whose networks are called separately; set `train.compile: false`",
            ("train", "compile"),
        )
    if train.compile == "cuda_graph":
        yield from _recording_faults(run)
    if train.precision == "fp16":
        yield from _half_faults(run, name)
    if run.parallel.sync_batch_norm:
        yield from _batch_norm_faults(run, name)
    if run.parallel.transport == "simulated" and run.parallel.simulation.compute == "batched":
        yield from _batched_faults(run)
    yield from _gpu_faults(run.parallel)


def _recording_faults(run: Any) -> Iterator[ConfigFault]:
    at, train = ("train", "compile"), run.train
    if not run.parallel.gpus_per_rank:
        yield ConfigFault(
            "cuda_graph needs GPUs; set `parallel.gpus_per_rank: 1`, or `train.compile: true`", at
        )
    if train.accumulate > 1 or train.precision == "fp16":
        yield ConfigFault(
            "cuda_graph supports neither train.accumulate nor fp16; set `train.compile: true`, or bf16 and `train.accumulate: 1`",
            at,
        )
    if run.problem.name == "dense_classification" or isinstance(run.problem, UserProblemConfig):
        yield ConfigFault(
            "cuda_graph supports neither dense_classification nor own problems; set `train.compile: true`", at
        )


def _half_faults(run: Any, name: str) -> Iterator[ConfigFault]:
    at = ("train", "precision")
    # Loss scaling skips the step of an infinite gradient, but not what an algorithm has stored of it.
    if run.algorithm.capabilities.keeps_gradients:
        yield ConfigFault(
            f"{name} keeps gradients, including infinite gradients that fp16 skips; set `train.precision: bf16`",
            at,
        )
    elif run.algorithm.capabilities.shares_gradient and not isinstance(run.compression, NoCompressionConfig):
        yield ConfigFault(
            "an infinite gradient that fp16 skips would remain in the error feedback of the compression; "
            "set `train.precision: bf16`",
            at,
        )


def _batch_norm_faults(run: Any, name: str) -> Iterator[ConfigFault]:
    at = ("parallel", "sync_batch_norm")
    if not run.algorithm.capabilities.shares_gradient:
        yield ConfigFault(
            f"the ranks of {name} do not compute the gradient of a step together; "
            "set `parallel.sync_batch_norm: false`, or `algorithm.name: allreduce`",
            at,
        )
    if run.parallel.transport == "simulated":
        yield ConfigFault(
            "simulated ranks share one thread and cannot wait for each other in the middle of a pass; "
            "set `parallel.sync_batch_norm: false`, or `parallel.transport: mpi`",
            at,
        )
    if run.model.is_network_file:
        yield ConfigFault(
            f"the layers of the saved network {run.model.name} cannot be replaced; set `parallel.sync_batch_norm: false`",
            at,
        )
    if run.train.compile:
        yield ConfigFault(
            "a compiled model cannot wait for other ranks between layers; set `parallel.sync_batch_norm: false`, "
            "or `train.compile: false`",
            at,
        )


def _batched_faults(run: Any) -> Iterator[ConfigFault]:
    plain = {
        ("train", "precision"): run.train.precision in ("float32", "float64"),
        ("train", "accumulate"): run.train.accumulate == 1,
        ("train", "compile"): not run.train.compile,
        ("problem", "name"): not isinstance(run.problem, UserProblemConfig),
        ("data", "placement"): run.data.placement == "host",
    }
    for key, is_plain in plain.items():
        if not is_plain:
            yield ConfigFault(
                "not supported with simulation.compute: batched; set `parallel.simulation.compute: exact`",
                key,
            )
    if run.model.is_network_file:
        yield ConfigFault(
            f"simulation.compute: batched does not support the saved network {run.model.name}; "
            "set `parallel.simulation.compute: exact`",
            ("model", "name"),
        )


def _gpu_faults(parallel: Any) -> Iterator[ConfigFault]:
    how, at = parallel.gpu_exchange, ("parallel", "gpu_exchange")
    if how == "nccl" and not parallel.gpus_per_rank:
        yield ConfigFault("nccl requires GPUs; set `parallel.gpus_per_rank: 1`", at)
    if how == "nccl" and parallel.ranks_per_gpu > 1:
        yield ConfigFault(
            "nccl requires one GPU per rank; set `parallel.ranks_per_gpu: 1`, or `parallel.gpu_exchange: host`",
            at,
        )
