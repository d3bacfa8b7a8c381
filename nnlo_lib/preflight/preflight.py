"""All checks of an experiment before anything starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.experiment.load import load_with_origins, refusal
from nnlo_lib.experiment.validation_messages import Mistake
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.preflight.argument_check import ARGUMENT_KEY, check_arguments
from nnlo_lib.preflight.expected_manifest import expected_manifest
from nnlo_lib.preflight.machine_check import machine_warnings
from nnlo_lib.preflight.mistake import Mistakes, distinct_runs
from nnlo_lib.preflight.sample_count_check import check_sample_counts
from nnlo_lib.preflight.source_check import check_sources
from nnlo_lib.preflight.target_check import check_targets
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.space.validate import extremes

logger = get_logger(__name__)
MODEL_SECTIONS = {"data", "model", "problem", "loss", "loss_weights", "metrics"}
SEARCH = "search"  # label of the base of a search; no run can have this name


def load_and_check(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Return the experiment in a file after all checks, as `load_experiment` and `check_experiment` do."""
    experiment, origins = load_with_origins(path, changes)
    check_experiment(experiment, origins)
    return experiment


def check_experiment(experiment: Experiment, origins: Mapping[KeyPath, str] | None = None) -> None:
    """Raise UserError with all mistakes of an experiment that can be found without training.

    Args:
        experiment: the experiment.
        origins: `file:line` of each written key; None for an experiment that was not read from a file.
    """
    runs = {} if experiment.search and not experiment.runs else experiment.variants
    found = [*_mistakes(experiment, runs), *_search_mistakes(experiment)]
    if found:
        raise refusal(dict.fromkeys(found), origins or {(): experiment.name})
    for doubt in dict.fromkeys(each for run in runs.values() for each in run.algorithm.doubts(run)):
        logger.warning(doubt)


def _mistakes(experiment: Experiment, runs: Mapping[str, Run]) -> list[Mistake]:
    """Return the mistakes of some runs of an experiment."""
    found = [*check_arguments(experiment, runs), *check_sources(experiment, runs)]
    # A model is not tried with functions or data that cannot be read: its error would only repeat theirs.
    if not any(found):
        found = _check_data_and_models(experiment, runs)
    return [mistake for each in found for mistake in each]


def _search_mistakes(experiment: Experiment) -> list[Mistake]:
    """Return the mistakes that all tried points of the space have: a trial that fails is no mistake of the search."""
    return min((_mistakes(experiment, {SEARCH: run}) for run in _trials(experiment)), key=len, default=[])


def _trials(experiment: Experiment) -> list[Run]:
    """Return the base of the search with the first, and the last, of the values for arguments of the model.

    Arguments that the experiment sets itself keep their value.
    """
    space = experiment.search.space if experiment.search else {}
    searched = {
        key: extremes(dimension)
        for key, dimension in space.items()
        if key.startswith(ARGUMENT_KEY) and key.removeprefix(ARGUMENT_KEY) not in experiment.model.args
    }
    ends = ({key: values[end] for key, values in searched.items()} for end in (0, -1))
    points = [nested(point) for point in ends] if searched else [{}]
    return [
        Run.model_validate(merge_settings(experiment.settings, point))
        for point in points
        if experiment.search
    ]


def _check_data_and_models(experiment: Experiment, runs: Mapping[str, Run]) -> list[Mistakes]:
    found = []
    for name, run in distinct_runs(runs, _identity):
        mistakes = Mistakes(experiment, name)
        with mistakes.collected("data", "reader"):
            manifest = expected_manifest(run)
            if manifest is None:
                logger.info(
                    f"{run.data.dataset}: the model is checked after the conversion, because the samples are unknown"
                )
            else:
                check_sample_counts(experiment, run, manifest, mistakes)
                check_targets(run, manifest, mistakes)
                # torch is imported only for an experiment without other mistakes.
                from nnlo_lib.preflight.model_check import check_model

                check_model(run, manifest, mistakes)
        found.append(mistakes)
    return found


def _identity(run: Run) -> str:
    """Return the settings that the checks of data and model read, as text."""
    train = run.model_dump_json(include={"train": {"precision", "batch_size", "steps_per_epoch", "dealing"}})
    workers = run.parallel.ranks - run.algorithm.servers
    return f"{run.model_dump_json(include=MODEL_SECTIONS)} {train} {workers}"


def warn_about_machine(experiment: Experiment) -> None:
    """Log a warning for each run that this machine cannot run well."""
    for warning in machine_warnings(experiment.variants):
        logger.warning(warning)
