"""Checks that the settings of an experiment, each valid by itself, fit together."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.paths import BEST_RUN, SEARCH_FOLDER, ExperimentPaths
from nnlo_lib.config.rules.unused_settings import unused_settings
from nnlo_lib.config.rules.watched_metrics import unvalidated_metrics
from nnlo_lib.experiment.validation_messages import Mistake, validation_mistakes
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.models.libraries.library_names import missing_library

Settings = Mapping[str, Any]  # the experiment as written in the file
Check = Callable[[Experiment, Settings], Iterator[Mistake]]


def find_mistakes(experiment: Experiment, settings: Settings) -> list[Mistake]:
    """Return the mistakes that the first failing check finds; later checks rely on the earlier ones."""
    found = (list(check(experiment, settings)) for check in CHECKS)
    return next(filter(None, found), [])


def _name_mistakes(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Yield runs with the name of a file or folder of the experiment."""
    for name in ExperimentPaths.reserved_names(experiment.search is not None) & experiment.runs.keys():
        owner = "the search" if name in (BEST_RUN, SEARCH_FOLDER) else "a file of the experiment"
        yield ("runs", name), f"this name is reserved for {owner}; rename the run"


def _run_mistakes(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Yield the mistakes of each run after merging its overrides."""
    base = experiment.settings
    for name, changes in experiment.runs.items():
        for key, message in validation_mistakes(Run, merge_settings(base, changes)):
            yield ("runs", name, *key), message


def _unused_mistakes(experiment: Experiment, settings: Settings) -> Iterator[Mistake]:
    """Yield settings of one run that its algorithm ignores, and shared settings that all runs ignore."""
    runs = {name: _unused(run) for name, run in experiment.variants.items()}
    for name, faults in runs.items():
        own = (key for key in faults if _is_set(settings, "runs", name, *key))
        yield from ((("runs", name, *key), faults[key]) for key in own)
    # Another algorithm that the search chooses can use what the algorithm of the base ignores.
    if experiment.search is None or "algorithm.name" not in experiment.search.space:
        # A search varies the base, which is one more run if there are named runs.
        of_all = [*runs.values(), *([_unused(experiment)] if experiment.search else [])]
        shared = (key for key in of_all[0] if all(key in faults for faults in of_all))
        yield from ((key, of_all[0][key]) for key in shared if _is_set(settings, *key))
        yield from _unused_search_mistakes(experiment)


def _unused_search_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    for searched in experiment.search.space if experiment.search else ():
        faults = (what for key, what in _unused(experiment).items() if searched.startswith(".".join(key)))
        yield from ((("search", "space", searched), what) for what in faults)


def _unused(run: Run) -> dict[KeyPath, str]:
    return {key: what for what, key in unused_settings(run)}


def _is_set(settings: Any, *key: str) -> bool:
    """Return True if the nested key has a value."""
    for part in key:
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings is not None


def _unvalidated_metric_mistakes(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Yield runs that watch a validation metric but have no validation samples."""
    for name, run in experiment.variants.items():
        # With folds, the held-out fold is the validation set, whatever `data.validation` is.
        for key, metric in unvalidated_metrics(run) if experiment.folds == 1 else ():
            yield (
                (*_run_key(experiment, name), "train", key),
                f"'{metric}' requires validation samples; set `data.validation` above 0",
            )


def _missing_extras(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Yield runs with settings that need a package that is not installed."""
    for name, run in experiment.variants.items():
        if missing := missing_library(run.model.name):
            yield (*_run_key(experiment, name), "model", "name"), missing
        if missing := run.observe.missing_package:
            yield (*_run_key(experiment, name), "observe", "tensorboard"), missing


def _graph_mistakes(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Yield runs whose graph cannot be built or does not suit their algorithm, for at least one seed."""
    runs = {
        name: run for name, run in experiment.variants.items() if run.algorithm.capabilities.graph_properties
    }
    if not runs:
        return
    # Imported only for runs with a graph, so that other experiments are checked faster.
    from nnlo_lib.topology.requirements import topology_error

    for name, run in runs.items():
        fault = next(filter(None, (topology_error(run, seed) for seed in experiment.seeds)), None)
        if fault:
            key, text = _split_key(fault)
            yield (*_run_key(experiment, name), *key), text


def _run_key(experiment: Experiment, name: str) -> KeyPath:
    """Return the key of a run's section; the settings of the only run are those of the experiment."""
    return ("runs", name) if experiment.runs else ()


def _split_key(fault: str) -> tuple[KeyPath, str]:
    """Return the key that a fault of a graph begins with, or `topology`, and the text after the key."""
    key, separator, text = fault.partition(": ")
    if separator and key.startswith("topology."):
        return tuple(key.split(".")), text
    return ("topology",), fault


def _search_mistakes(experiment: Experiment, _: Settings) -> Iterator[Mistake]:
    """Return the mistakes of the search, for example values that no run accepts."""
    if experiment.search is None:
        return iter(())
    from nnlo_lib.search.space.validate import find_search_mistakes

    return find_search_mistakes(
        with_model_parameter_ranges(experiment), lambda run: validation_mistakes(Run, run)
    )


def with_model_parameter_ranges(experiment: Experiment) -> Experiment:
    """Return the experiment with the ranges that the model's function defines added to its search space.

    Ranges written in the experiment take precedence.
    """
    if experiment.search is None:
        return experiment
    from nnlo_lib.search.space.skopt_dimensions import read_model_space

    space = read_model_space(experiment.model) | experiment.search.space
    return experiment.model_copy(update={"search": experiment.search.model_copy(update={"space": space})})


# The order matters: experiment.variants, which later checks read, fails for a run with a mistake that the
# first check reports. The search is last, because it validates points of the space on top of a valid base.
CHECKS: tuple[Check, ...] = (
    _name_mistakes,
    _run_mistakes,
    _unused_mistakes,
    _unvalidated_metric_mistakes,
    _missing_extras,
    _graph_mistakes,
    _search_mistakes,
)
