"""Publish the output of the observers: trace.json and, if configured, monitor.csv and profiles."""

import shutil
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.state import chrome_trace as trace
from nnlo_lib.train.observe import resource_monitor as monitor
from nnlo_lib.train.task import Task

PROFILE_GLOB = "profile-*"


def publish_observations(task: Task) -> dict[str, Any]:
    """Merge the output of all ranks and attempts into the run's folder; return its part of the summary."""
    trace.write_chrome_trace(task.observe_folder, task.paths.trace)
    # An earlier experiment in this folder may have had other observers.
    for old in (*task.folder.glob(PROFILE_GLOB), task.paths.monitor):
        old.unlink(missing_ok=True)
    for found in task.observe_folder.glob(PROFILE_GLOB):
        with atomic_write(task.folder / found.name) as part:
            shutil.copyfile(found, part)
    if not any(task.observe_folder.glob("monitor-*.csv")):
        return {}
    monitor.merge_monitor_files(task.observe_folder, task.paths.monitor)
    return {"monitor": monitor.mean_and_max(task.paths.monitor)}
