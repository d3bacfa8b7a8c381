"""Publish what observers saw: trace.json, and monitor.csv and profiles if they were wished for."""

import shutil
from typing import Any

from nnlo_lib.data.atomic import replacing
from nnlo_lib.state import trace
from nnlo_lib.train.observe import monitor
from nnlo_lib.train.task import Task

TRACE, MONITOR, PROFILES = "trace.json", "monitor.csv", "profile-*"


def publish_observed(task: Task) -> dict[str, Any]:
    """Join what all ranks and attempts wrote into the run's folder; return what the summary says of it."""
    trace.join(task.observed, task.folder / TRACE)
    for old in (*task.folder.glob(PROFILES), *task.folder.glob(MONITOR)):
        old.unlink()
    for found in task.observed.glob(PROFILES):
        with replacing(task.folder / found.name) as part:
            shutil.copyfile(found, part)
    if not any(task.observed.glob("monitor-*.csv")):
        return {}
    monitor.join(task.observed, task.folder / MONITOR)
    return {"monitor": monitor.extremes(task.folder / MONITOR)}
