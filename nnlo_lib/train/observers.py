"""Observers that the settings `observe` enable: profiler, trace spans of each step, loggers of the history, resource monitor."""

import cProfile
import io
import pstats
from collections.abc import Callable
from pathlib import Path

import torch

from nnlo_lib.config.checkpoint import LOGGERS, ProfileConfig
from nnlo_lib.state.chrome_trace import TraceWriter
from nnlo_lib.train.callback import Callback, Event
from nnlo_lib.train.history_loggers import HistoryCallback
from nnlo_lib.train.resource_monitor import ResourceMonitor
from nnlo_lib.train.trainer import Trainer

LINES = 60  # rows of the profilers' text tables
UNTRACED = ("run", "serve")  # parts of a training whose phases are in the trace already


def attach_observers(trainer: Trainer) -> None:
    """Add this rank's observers to the trainer's callbacks."""
    context, observe = trainer.context, trainer.context.task.run.observe
    rank, is_first = context.comm.rank, context.comm.rank == 0
    # First, so that the measurements of the other observers do not include the profiler's start and stop.
    if observe.profile and observe.profile.rank == rank:
        trainer.callbacks.append(StepProfiler(trainer, observe.profile))
    if observe.trace:
        trainer.callbacks.append(StepTracer(context.comm.now, context.phase_timer.trace))
    for name in LOGGERS if is_first else ():
        if getattr(observe, name):
            trainer.callbacks.append(HistoryCallback(name, context.task, trainer.recorder))
    if observe.monitor and (is_first or not context.comm.is_virtual):  # simulated ranks share one process
        monitor = ResourceMonitor(context.task.observe_folder, rank, context.device, observe.monitor)
        trainer.callbacks.append(monitor)


class Torch:
    """Profiles torch operators on CPU and GPU; writes a Chrome trace and a table."""

    def __init__(self) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        kinds += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profile = torch.profiler.profile(activities=kinds)
        self.start, self.stop = self._profile.start, self._profile.stop

    def write(self, stem: Path) -> None:
        """Write the files `stem` with .json and .txt."""
        self._profile.export_chrome_trace(str(stem.with_suffix(".json")))
        table = self._profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=LINES)
        stem.with_suffix(".txt").write_text(table)


class CProfile:
    """Profiles Python functions; writes .prof for snakeviz and pstats, and a table sorted by own time."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()
        self.start, self.stop = self._profile.enable, self._profile.disable

    def write(self, stem: Path) -> None:
        """Write the files `stem` with .prof and .txt."""
        self._profile.dump_stats(stem.with_suffix(".prof"))
        text = io.StringIO()
        pstats.Stats(self._profile, stream=text).sort_stats("tottime").print_stats(LINES)
        stem.with_suffix(".txt").write_text(text.getvalue())


class StepProfiler(Callback):
    """Profiles the steps in `settings` that this attempt executes; on a server, until its first pause."""

    def __init__(self, trainer: Trainer, settings: ProfileConfig) -> None:
        self._trainer, self._settings = trainer, settings
        self._tool: Torch | CProfile | None = None
        self._over = False
        self._begun = self._done = 0

    def begin(self, part: str) -> None:
        # `position.steps` counts completed steps; the settings count steps from 1.
        step = self._trainer.position.steps + 1
        is_due = part == "serve" or (part == "step" and self._is_due(step))
        if is_due and self._tool is None and not self._over:
            self._begun, self._tool = step, Torch() if self._settings.tool == "torch" else CProfile()
            self._tool.start()

    def end(self, part: str) -> None:
        if part == "step":
            self._done = self._trainer.position.steps
        if part == "serve" or (part == "step" and not self._is_due(self._done + 1)):
            self.close()

    def _is_due(self, step: int) -> bool:
        return self._settings.first <= step < self._settings.first + self._settings.steps

    def close(self) -> None:
        """Stop the profiler and write its files; a write error is only logged as a warning."""
        # The tool is released before it writes: `close` may be called again, at the latest when the run ends.
        tool, self._tool, self._over = self._tool, None, self._over or self._tool is not None
        if tool is None:
            return
        tool.stop()
        folder = self._trainer.context.task.observe_folder
        steps = f"steps-{self._begun}-{self._done}" if self._trainer.context.is_worker else "serving"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tool.write(folder / f"profile-{self._settings.tool}-rank-{self._settings.rank}-{steps}")
        except OSError as error:
            self._trainer.journal.warn(f"the profile could not be written: {error}")


class StepTracer(Callback):
    """Traces steps, forward and backward passes, the optimizer and the algorithm's hooks.

    `now` returns seconds on the rank's clock. Spans nest: the span that began last ends first. A forward pass
    lasts from the start of a gradient, or from the end of the previous backward pass, to the next backward
    pass.
    """

    def __init__(self, now: Callable[[], float], trace: TraceWriter) -> None:
        self._now, self._trace = now, trace
        self._begun: list[float] = []
        self._forward_begun = 0.0

    def begin(self, part: str) -> None:
        if part == "backward":
            self._begun.append(self._write_since(self._forward_begun, "forward"))
        elif part not in UNTRACED:
            self._begun.append(self._now())

    def end(self, part: str) -> None:
        if part not in UNTRACED:
            ended = self._write_since(self._begun.pop(), part)
            self._forward_begun = ended if part == "backward" else self._forward_begun

    def on(self, event: Event) -> None:
        if event == "gradient":
            self._forward_begun = self._now()

    def _write_since(self, begun: float, name: str) -> float:
        """Write a span that ends now; return the current time."""
        now = self._now()
        self._trace.detail_span(name, "compute", begun, now)
        return now
