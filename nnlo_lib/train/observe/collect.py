"""Publish what observers saw: trace.json, and monitor.csv and profiles if they were wished for."""

import shutil
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.state import chrome_trace as trace
from nnlo_lib.train.observe import resource_monitor as monitor
from nnlo_lib.train.task import Task

PROFILE_GLOB = "profile-*"


def publish_observations(task: Task) -> dict[str, Any]:
    """Join what all ranks and attempts wrote into the run's folder; return what the summary says of it."""
    trace.write_chrome_trace(task.observe_folder, task.paths.trace)
    for old in (*task.folder.glob(PROFILE_GLOB), task.paths.monitor):
        old.unlink(missing_ok=True)
    for found in task.observe_folder.glob(PROFILE_GLOB):
        with atomic_write(task.folder / found.name) as part:
            shutil.copyfile(found, part)
    if not any(task.observe_folder.glob("monitor-*.csv")):
        return {}
    monitor.merge_monitor_files(task.observe_folder, task.paths.monitor)
    return {"monitor": monitor.mean_and_max(task.paths.monitor)}
