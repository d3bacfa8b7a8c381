"""`parallel.gpus_per_rank: auto` in an experiment file: the GPUs of this host instead of a number."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from nnlo_lib.config import merge_settings
from nnlo_lib.config.base import default
from nnlo_lib.config.parallel import AUTO, ParallelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.visible_gpus import visible_gpus
from nnlo_lib.experiment.overrides import apply_overrides
from nnlo_lib.experiment.yaml_source import read_yaml

logger = get_logger(__name__)


def with_visible_gpus(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a file in which `auto` is replaced by a number for this host; nothing is validated yet."""
    if not has_automatic_gpus(settings):
        return settings
    count = len(visible_gpus())
    if count:
        logger.info(f"parallel.gpus_per_rank: auto is 1, because this host shows {count} GPUs")
    else:
        logger.info(
            "parallel.gpus_per_rank: auto is 0, because this host shows no GPU; the ranks compute on CPUs"
        )
    return with_numbers_of_gpus(settings, count)


def with_numbers_of_gpus(settings: dict[str, Any], count: int) -> dict[str, Any]:
    """Return settings in which `auto` is replaced by a number, if `count` GPUs are visible on each host.

    Raises UserError if a search varies the number of ranks, which the number of GPUs depends on.
    """
    runs = dict(_runs(settings))
    if _within(settings, "search", "space", "parallel.ranks"):
        raise UserError(
            "parallel.gpus_per_rank: auto does not fit a search over parallel.ranks; write 0 or 1 and ranks_per_gpu"
        )
    base = merge_settings(settings, {"parallel": _numbers(settings, count)} if _has_auto(settings) else {})
    return dict(base) | _changed_runs(settings, runs, count)


def has_automatic_gpus(settings: dict[str, Any]) -> bool:
    """Return True if a run has `auto`, as written or from the base."""
    return any(_has_auto(run) for run in (settings, *dict(_runs(settings)).values()))


def refuse_automatic_gpus(path: str | Path, changes: Sequence[str] = ()) -> None:
    """Raise UserError if an experiment, whose jobs run on other hosts, has `gpus_per_rank: auto`.

    Args:
        path: the experiment file.
        changes: overrides of the command line.
    """
    settings, origins = read_yaml(Path(path))
    apply_overrides(settings, origins, changes)
    if has_automatic_gpus(settings):
        raise UserError(
            f"{path}: parallel.gpus_per_rank: auto counts the GPUs of this host, but the jobs run on hosts of a cluster, which "
            "has to know the number in advance; write 1, or 0 for CPUs"
        )


def _changed_runs(settings: Mapping[str, Any], runs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return `runs` with numbers, also for runs whose number of ranks differs from the base; empty without runs.

    Args:
        settings: settings as written.
        runs: each named run merged into the base.
        count: number of GPUs that are visible on each host.
    """
    if not runs:
        return {}
    found = {name: settings["runs"][name] for name in settings["runs"]}
    for name, run in runs.items():
        own = found[name] if isinstance(found[name], dict) else {}
        if _has_auto(run) and ("parallel" in own or "resources" in own):
            found[name] = merge_settings(own, {"parallel": _numbers(run, count)})
    return {"runs": found}


def _numbers(run: Mapping[str, Any], count: int) -> dict[str, int]:
    """Return the keys that replace `auto` in a run, if `count` GPUs are visible on each host."""
    if not count:
        return {"gpus_per_rank": 0}
    ranks = _number(run, default(ParallelConfig, "ranks"), "parallel", "ranks")
    nodes, written = _number(run, 1, "resources", "nodes"), _number(run, 1, "parallel", "ranks_per_gpu")
    sharing = max(written, ceil(ceil(ranks / nodes) / count))
    is_virtual = _within(run, "parallel", "transport") == "simulated"
    return (
        {"gpus_per_rank": 1} if is_virtual or sharing == 1 else {"gpus_per_rank": 1, "ranks_per_gpu": sharing}
    )


def _runs(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each named run merged into the base, as written."""
    runs = settings.get("runs")
    for name, changes in runs.items() if isinstance(runs, dict) else ():
        yield name, merge_settings(settings, changes if isinstance(changes, dict) else {})


def _has_auto(run: Any) -> bool:
    return bool(_within(run, "parallel", "gpus_per_rank") == AUTO)


def _number(run: Any, otherwise: int, *path: str) -> int:
    """Return a positive number at a key; `otherwise` if there is none, or a mistake that the validation reports."""
    value = _within(run, *path)
    return value if isinstance(value, int) and value > 0 else otherwise


def _within(settings: Any, *path: str) -> Any:
    for key in path:
        settings = settings.get(key) if isinstance(settings, Mapping) else None
    return settings
