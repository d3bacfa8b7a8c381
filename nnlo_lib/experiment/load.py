"""Loading of experiment files; the error lists every mistake with its file, line and remedy."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.automatic_gpus import with_visible_gpus
from nnlo_lib.experiment.checks import find_mistakes, with_model_parameter_ranges
from nnlo_lib.experiment.overrides import apply_overrides
from nnlo_lib.experiment.validation_messages import Mistake, describe_validation_error
from nnlo_lib.experiment.yaml_source import MAX_LEVELS, KeyPath, read_settings, read_yaml


def load_experiment(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Return the checked experiment in `path`, with `key.subkey=value` changes applied.

    Raises UserError with a list of all mistakes as `file:line: key: message`.
    """
    return load_with_origins(path, changes)[0]


def load_with_origins(
    path: str | Path, changes: Sequence[str] = ()
) -> tuple[Experiment, Mapping[KeyPath, str]]:
    """Return the experiment as `load_experiment` does, and the `file:line` of each written key."""
    settings, origins = read_yaml(Path(path))
    origins = apply_overrides(settings, origins, changes)
    return _checked(settings, origins), origins


def experiment_from_settings(settings: Mapping[str, Any], changes: Sequence[str] = ()) -> Experiment:
    """Return the checked experiment with these settings and changes, as `load_experiment` does."""
    try:
        text = json.dumps(settings)  # JSON is YAML
    except (RecursionError, ValueError) as error:  # ValueError: the settings contain themselves
        raise UserError(
            f"experiment: more than {MAX_LEVELS} nested levels; check the nested settings"
        ) from error
    values, origins = read_settings(text, lambda line: "experiment")
    return _checked(values, apply_overrides(values, origins, changes))


def _checked(settings: dict[str, Any], origins: Mapping[KeyPath, str]) -> Experiment:
    settings = with_visible_gpus(settings)
    try:
        experiment = Experiment.model_validate(settings)
    except ValidationError as error:
        raise refusal(describe_validation_error(Experiment, error), origins) from None
    if mistakes := find_mistakes(experiment, settings):
        raise refusal(mistakes, origins)
    return with_model_parameter_ranges(experiment)


def refusal(mistakes: Iterable[Mistake], origins: Mapping[KeyPath, str]) -> UserError:
    """Return the error that lists these mistakes in the order of the written keys."""
    order = {written: index for index, written in enumerate(origins)}
    located = [(_nearest_written_key(key, origins), key, what) for key, what in mistakes]
    located.sort(key=lambda mistake: order[mistake[0]])
    lines = (f"{origins[written]}: {'.'.join(key)}: {what}" for written, key, what in located)
    return UserError("\n  ".join(["the experiment cannot run", *lines]))


def _nearest_written_key(key: KeyPath, origins: Mapping[KeyPath, str]) -> KeyPath:
    """Return the written key nearest to `key`: in the run's overrides, the base, or an enclosing section."""
    written = next(key[:depth] for depth in range(len(key), -1, -1) if key[:depth] in origins)
    # A written key of fewer than 3 parts is at most `runs.<name>`: the run overrides nothing in the section
    # of the key, so that the value comes from the base.
    in_base = key[2:] if key[:1] == ("runs",) else ()
    if in_base and len(written) < 3 and in_base[:1] in origins:
        return _nearest_written_key(in_base, origins)
    return written
