"""Profile some steps of one rank: torch's operators or Python's functions."""

import cProfile
import io
import pstats
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import torch

from nnlo_lib.config import Profile
from nnlo_lib.train.training import Training

LINES = 60  # of a table


class Tool(Protocol):
    """A profiler that can be started once, and then stopped and written to files called `stem`."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def write(self, stem: Path) -> None: ...


class Torch:
    """Operators, on processor and GPU: a Chrome trace and a table."""

    def __init__(self) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        kinds += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profile = torch.profiler.profile(activities=kinds)
        self.start, self.stop = self._profile.start, self._profile.stop

    def write(self, stem: Path) -> None:
        """Write .json and .txt."""
        self._profile.export_chrome_trace(str(stem.with_suffix(".json")))
        table = self._profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=LINES)
        stem.with_suffix(".txt").write_text(table)


class CProfile:
    """Python's functions: .prof for snakeviz and pstats, and a table by own time."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()
        self.start, self.stop = self._profile.enable, self._profile.disable

    def write(self, stem: Path) -> None:
        """Write .prof and .txt."""
        self._profile.dump_stats(stem.with_suffix(".prof"))
        text = io.StringIO()
        pstats.Stats(self._profile, stream=text).sort_stats("tottime").print_stats(LINES)
        stem.with_suffix(".txt").write_text(text.getvalue())


TOOLS: dict[str, Callable[[], Tool]] = {"torch": Torch, "cprofile": CProfile}


class Profiler:
    """Profiles the steps of a run that `wish` names, as far as this attempt does them; a server until it pauses."""

    def __init__(self, training: Training, wish: Profile) -> None:
        self._training, self._wish = training, wish
        self._tool: Tool | None = None
        self._over = False
        self._begun = self._done = 0
        owner, name = (training, "_step") if training.is_worker else (training.algorithm, "serve")
        setattr(owner, name, self._around(getattr(owner, name)))

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def profiled(*given: Any, **named: Any) -> Any:
            self._before()
            result = call(*given, **named)
            self._after()
            return result

        return profiled

    def _before(self) -> None:
        if self._tool is None and not self._over and self._is_due(self._training.steps + 1):
            self._begun, self._tool = self._training.steps + 1, TOOLS[self._wish.tool]()
            self._tool.start()

    def _is_due(self, step: int) -> bool:
        wish = self._wish
        return not self._training.is_worker or wish.first <= step < wish.first + wish.steps

    def _after(self) -> None:
        self._done = self._training.steps
        if not self._is_due(self._done + 1) or not self._training.is_worker:
            self.close()

    def close(self) -> None:
        """Stop, and write what was seen; a disk that refuses costs the profile only."""
        tool, self._tool, self._over = self._tool, None, self._over or self._tool is not None
        if tool is not None:
            tool.stop()
            try:
                tool.write(self._stem())
            except OSError as error:
                self._training.journal.write(f"warning: the profile could not be written: {error}")

    def _stem(self) -> Path:
        folder = self._training.task.observed
        folder.mkdir(parents=True, exist_ok=True)
        steps = f"steps-{self._begun}-{self._done}" if self._training.is_worker else "serving"
        return folder / f"profile-{self._wish.tool}-rank-{self._wish.rank}-{steps}"
