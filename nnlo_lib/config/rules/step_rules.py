"""Checks of the steps of workers: numbers of ranks, batches on demand, learning rate, precision and speed.

Each fault is `key: sentence`. Runs have the type Any, because config.Run imports these checks.
"""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm_base import StepOwner
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.problem import UserProblemConfig
from nnlo_lib.config.schedule import ConstantScheduleConfig, DiminishingScheduleConfig

REASONS_WITHOUT_SCHEDULE: dict[StepOwner, str] = {
    "server's": "applies updates on the server, which does not support learning-rate schedules",
    "algorithm's": "has no optimizer: its step follows from algorithm.beta",
}
REASON_WITHOUT_OPTIMIZER = (
    "with `algorithm.optimizer` and `sync_every: 1` updates parameters only by the server's optimizer"
)


def rank_count_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run in the numbers of its ranks, servers and processes per worker."""
    ranks, group, servers = run.parallel.ranks, run.parallel.processes_per_worker, run.algorithm.servers
    name, row = run.algorithm.name, run.algorithm.capabilities
    if group > 1 and not row.supports_worker_groups:
        yield (
            f"parallel.processes_per_worker: {name} does not support workers of several processes; "
            "set `parallel.processes_per_worker: 1`"
        )
    # Each server below the root needs a worker.
    workers = max(row.min_ranks - bool(servers), servers - 1)
    least = servers + workers * group
    if ranks < least and servers > 1:
        yield (
            f"algorithm.masters: {servers} masters require at least {workers} worker{'s' * (workers > 1)}, one for each server "
            f"below the root; lower `algorithm.masters`, or set `parallel.ranks: {least}` or more"
        )
    elif ranks < least:
        of = f" of {group} ranks" if group > 1 else ""
        reason = f"one worker{of}" if workers == 1 else f"a node{of} exchanges vectors with another node"
        yield (
            f"parallel.ranks: {name} requires at least {least} ranks ({'one server and ' * servers}{reason}); "
            f"set `parallel.ranks: {least}` or more"
        )
    if rest := (ranks - servers) % group:
        minus = {0: "", 1: " minus one server"}.get(servers, f" minus {servers} servers")
        yield (
            f"parallel.ranks: {ranks} ranks{minus} cannot be divided into workers of {group} ranks; set `parallel.ranks` to "
            f"{ranks - rest} or {ranks - rest + group}, or change `parallel.processes_per_worker`"
        )


def dealing_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run with dynamic dealing."""
    if run.train.dealing == "static":
        return
    static = "set `train.dealing: static`"
    if not run.algorithm.is_asynchronous:
        # An asynchronous algorithm, if the settings make its workers wait.
        is_made = run.algorithm.capabilities.asynchronous
        yield (
            f"train.dealing: {'with `algorithm.synchronous: true`, ' * is_made}the workers of {run.algorithm.name} wait for "
            f"each other; {static}{', or remove `algorithm.synchronous`' * is_made}"
        )
    if run.data.partition.name != "iid":
        yield f"train.dealing: workers with separate samples (data.partition) cannot take batches of other workers; {static}"
    if run.parallel.processes_per_worker > 1:
        yield f"train.dealing: the processes of a worker wait for each other; {static}"
    if run.train.validate_every is not None:
        yield (
            "train.validate_every: with dynamic dealing, the number of steps per worker is not known in advance; "
            f"{static}, or remove `train.validate_every`"
        )


def step_setting_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run in settings of the learning rate, of an epoch's steps and of a batch."""
    algorithm, train, row = run.algorithm, run.train, run.algorithm.capabilities
    if run.data.stream and train.steps_per_epoch is not None:
        yield (
            "train.steps_per_epoch: with data.stream, an epoch follows the samples of a worker from first to last; remove "
            "`train.steps_per_epoch`, and set `train.validate_every` for more frequent validation"
        )
    why = f"{algorithm.name} {REASONS_WITHOUT_SCHEDULE.get(row.step, '')}"
    if train.scale_lr != "none" and not (algorithm.uses_train_optimizer or algorithm.worker_optimizer):
        reason = why if row.step == "algorithm's" else f"{algorithm.name} {REASON_WITHOUT_OPTIMIZER}"
        yield f"train.scale_lr: {reason}; set `train.scale_lr: none`"
    if not row.supports_schedule and not isinstance(train.schedule, ConstantScheduleConfig):
        yield f"train.schedule: {why}; set `train.schedule.name: constant`"
    if not row.supports_schedule and train.warm_up:
        yield f"train.warm_up: {why}; remove `train.warm_up`"
    schedule, lr = train.schedule, run.worker_train.scaled_lr(run.workers)
    # Later rates have the sign of the second one, because mu lr only falls.
    if isinstance(schedule, DiminishingScheduleConfig) and schedule.mu * lr >= 1:
        yield (
            f"train.schedule.mu: mu times the learning rate is {schedule.mu * lr:g}, so that lr (1 - mu lr) is not positive; "
            f"set `train.schedule.mu` below {1 / lr:g}, or lower `train.optimizer.lr`"
        )
    if train.accumulate > train.batch_size:
        yield (
            f"train.accumulate: a batch of {train.batch_size} samples cannot be divided into {train.accumulate} parts; "
            f"set `train.accumulate` to at most {train.batch_size}"
        )
    if train.clip_norm is not None and row.step == "algorithm's":
        yield (
            f"train.clip_norm: {algorithm.name} has no optimizer, so gradients cannot be clipped; remove `train.clip_norm`"
        )
    average = "an average of the weights needs ranks that share each gradient"
    if train.ema and not row.shares_gradient:
        yield f"train.ema: {average}; set `algorithm.name: allreduce`, or remove `train.ema`"
    rules = (train.optimizer, algorithm.server_optimizer, algorithm.worker_optimizer)
    if any(rule and rule.name == "schedule_free" for rule in rules):
        if not row.shares_gradient:
            yield f"train.optimizer: {average}, which schedule_free publishes; set `algorithm.name: allreduce`, or adamw"
        if train.ema:
            yield "train.ema: schedule_free publishes an average of its own; remove `train.ema`"
        if run.problem.name == "gan":
            yield "train.optimizer: schedule_free is not supported for a gan; use adamw, or sgd"


def precision_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run in settings of precision and speed."""
    name, train, row, parallel = run.algorithm.name, run.train, run.algorithm.capabilities, run.parallel
    if train.compile and run.problem.name == "gan":
        yield "train.compile: not supported for a gan, whose networks are called separately; set `train.compile: false`"
    if train.compile == "cuda_graph":
        if not parallel.gpus_per_rank:
            yield "train.compile: cuda_graph needs GPUs; set `parallel.gpus_per_rank: 1`, or `train.compile: true`"
        if train.accumulate > 1 or train.precision == "fp16":
            yield (
                "train.compile: cuda_graph supports neither train.accumulate nor fp16; set `train.compile: true`, or bf16 and "
                "`train.accumulate: 1`"
            )
        if run.problem.name == "dense_classification" or isinstance(run.problem, UserProblemConfig):
            yield (
                "train.compile: cuda_graph supports neither dense_classification nor own problems; set `train.compile: true`"
            )
    # Loss scaling skips the step of an infinite gradient, but not what an algorithm has stored of it.
    if train.precision == "fp16" and row.keeps_gradients:
        yield (
            f"train.precision: {name} keeps gradients, including infinite gradients that fp16 skips; "
            "set `train.precision: bf16`"
        )
    elif (
        train.precision == "fp16"
        and row.shares_gradient
        and not isinstance(run.compression, NoCompressionConfig)
    ):
        yield (
            "train.precision: an infinite gradient that fp16 skips would remain in the error feedback of the compression; "
            "set `train.precision: bf16`"
        )
    if parallel.sync_batch_norm:
        yield from _batch_norm_faults(run, "set `parallel.sync_batch_norm: false`")
    if parallel.transport == "simulated" and parallel.simulation.compute == "batched":
        yield from _batched_faults(run)
    if parallel.gpu_exchange == "nccl" and not parallel.gpus_per_rank:
        yield "parallel.gpu_exchange: nccl requires GPUs; set `parallel.gpus_per_rank: 1`"
    if parallel.gpu_exchange == "nccl" and parallel.ranks_per_gpu > 1:
        yield (
            "parallel.gpu_exchange: nccl requires one GPU per rank; set `parallel.ranks_per_gpu: 1`, or "
            "`parallel.gpu_exchange: host`"
        )


def _batch_norm_faults(run: Any, remedy: str) -> Iterator[str]:
    at = "parallel.sync_batch_norm"
    if run.problem.name == "gan":
        yield f"{at}: not supported for a gan, whose networks normalize the samples of each rank; {remedy}"
    if not run.algorithm.capabilities.shares_gradient:
        yield (
            f"{at}: the ranks of {run.algorithm.name} do not compute the gradient of a step together; {remedy}, "
            "or `algorithm.name: allreduce`"
        )
    if run.parallel.transport == "simulated":
        yield (
            f"{at}: simulated ranks share one thread and cannot wait for each other in the middle of a pass; {remedy}, "
            "or `parallel.transport: mpi`"
        )
    if run.model.is_network_file:
        yield f"{at}: the layers of the saved network {run.model.name} cannot be replaced; {remedy}"
    if run.train.compile:
        yield f"{at}: a compiled model cannot wait for other ranks between layers; {remedy}, or `train.compile: false`"


def _batched_faults(run: Any) -> Iterator[str]:
    remedy = "set `parallel.simulation.compute: exact`"
    if run.problem.name == "gan":
        yield f"parallel.simulation.compute: batched is not supported for a gan; {remedy}"
    needs_own_pass = {
        "train.precision": run.train.precision in ("bf16", "fp16"),
        "train.accumulate": run.train.accumulate > 1,
        "train.compile": run.train.compile,
        "problem.name": isinstance(run.problem, UserProblemConfig),
        "data.placement": run.data.placement == "device",
    }
    for key, is_set in needs_own_pass.items():
        if is_set:
            yield f"{key}: not supported with simulation.compute: batched; {remedy}"
    if run.model.is_network_file:
        yield f"model.name: simulation.compute: batched does not support the saved network {run.model.name}; {remedy}"
