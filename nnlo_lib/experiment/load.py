"""Loading of experiment files with `--set` and `gpus_per_rank: auto`; an error lists every mistake with its line."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types, merge_settings
from nnlo_lib.config.base import default, value_at
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.parallel import AUTO, ParallelConfig, ResourcesConfig
from nnlo_lib.config.search import FoldsConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import visible_gpus
from nnlo_lib.core.text_format import plural
from nnlo_lib.experiment.checks import (
    Mistake,
    describe_validation_error,
    find_mistakes,
    shown,
    with_model_parameter_ranges,
)
from nnlo_lib.experiment.yaml_source import MAX_LEVELS, KeyPath, parse_yaml, read_settings, read_yaml

logger = get_logger(__name__)


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
    settings = with_visible_gpus(with_sections(Experiment, settings))
    try:
        experiment = Experiment.model_validate(settings)
    except ValidationError as error:
        raise refusal(describe_validation_error(Experiment, error), origins) from None
    if isinstance(settings.get("seeds"), int):
        numbers = ", ".join(map(str, experiment.seeds))
        logger.info(
            f"seeds: {settings['seeds']} trains with the seeds {numbers}; for the seed {settings['seeds']} alone, write [{settings['seeds']}]"
        )
    if mistakes := find_mistakes(experiment, settings):
        raise refusal(mistakes, origins)
    return with_model_parameter_ranges(experiment)


def with_sections(block: type[ConfigModel], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a section with a section for each text that is only its name.

    `model: resnet20` becomes `model: {name: resnet20}`, `data: mnist` becomes `data: {dataset: mnist}`, and `folds: 2` of a search
    becomes `folds: {k: 2}`. The short key
    `mem` becomes `mem_mb`, unless both are written.
    """
    fields = block.model_fields
    if block is ResourcesConfig and "mem_mb" not in settings:
        settings = {"mem_mb" if key == "mem" else key: value for key, value in settings.items()}
    written = {
        key: _section(fields[key].annotation, value) if key in fields else value
        for key, value in settings.items()
    }
    if isinstance(runs := written.get("runs"), dict) and block is Experiment:
        written["runs"] = {
            name: with_sections(Run, changes) if isinstance(changes, dict) else changes
            for name, changes in runs.items()
        }
    return written


def _section(annotation: Any, value: Any) -> Any:
    blocks = [] if get_origin(annotation) is dict else list(block_types(annotation))
    if blocks == [FoldsConfig] and type(value) is int:
        return {"k": value}
    short = "dataset" if blocks == [DataConfig] else "name"
    if isinstance(value, str) and blocks and all(short in each.model_fields for each in blocks):
        value = {short: value}
    if not isinstance(value, dict):
        return value
    named = [
        each for each in blocks
        if len(blocks) == 1 or ("name" in each.model_fields and default(each, "name") == value.get("name"))
    ]  # fmt: skip
    return with_sections(named[0], value) if named else value


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


def apply_overrides(
    settings: dict[str, Any], origins: dict[KeyPath, str], changes: Sequence[str]
) -> dict[KeyPath, str]:
    """Apply changes `key.subkey=value` to the settings in place; return the updated `file:line` of every key."""
    # A new `name` discards the other keys of its section, so that it must not come after them.
    for change in sorted(changes, key=lambda change: parse_override(change)[0][-1] != "name"):
        key = _apply(settings, change)
        # The change replaces everything below its key, with its lines; enclosing sections keep their lines.
        origins = {other: place for other, place in origins.items() if other[: len(key)] != key}
        for depth in range(len(key)):
            origins.setdefault(key[: depth + 1], f"--set {change}")
    return origins


def _apply(settings: dict[str, Any], change: str) -> KeyPath:
    """Apply one `key.subkey=value` and return its key; a new `name` clears its section, as in `runs`."""
    key, given = parse_override(change)
    *path, last = key
    settings.update(with_sections(Experiment, settings))
    block = settings
    for part in path:
        inner = block.get(part)
        if not isinstance(inner, dict | None):
            raise UserError(f"--set {change}: '{part}' is {shown(inner)}, which has no keys")
        # A copy, because an alias of YAML lets several keys share one mapping. Python assigns from left to right:
        # first the entry of the outer mapping, then the name `block`.
        block[part] = block = dict(inner or {})
    if path and last == "name" and block.get("name", given) != given:
        block.clear()
    block[last] = given
    return key


def parse_override(change: str) -> tuple[KeyPath, Any]:
    """Return the key and the value of a `key.subkey=value`. Raises UserError if it has another form."""
    name, equals, value = change.partition("=")
    # The part after `search.space.` is one key that contains dots.
    inside = name.removeprefix("search.space.")
    key = ("search", "space", inside) if inside != name else tuple(name.split("."))
    if not (equals and all(key)):
        raise UserError(f"--set {change}: not of the form key=value; write for example --set train.epochs=3")
    return key, parse_yaml(value, lambda line: f"--set {change}")[0]


def reject_ineffective_overrides(
    experiment: Experiment, names: Sequence[str], changes: Sequence[str]
) -> None:
    """Raise UserError if a change has no effect because each of the named runs overrides its key."""
    base = experiment.settings
    merged = {name: merge_settings(base, experiment.runs.get(name, {})) for name in names}

    def text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    for change in changes:
        for key, value in _leaves(*parse_override(change)):
            values = {name: value_at(run, *key) for name, run in merged.items()}
            kept = {
                f"runs.{name}.{'.'.join(key)}": own
                for name, own in values.items()
                if own != value_at(base, *key)
            }
            # A change that at least one run takes over has an effect.
            if len(kept) == len(names):
                overriding = ", ".join(f"{own_key} is {text(own)}" for own_key, own in kept.items())
                instead = " ".join(f"--set {own_key}={text(value)}" for own_key in kept)
                raise UserError(f"--set {change} has no effect: {overriding}; use {instead}")


def _leaves(key: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for part, inner in value.items():
            yield from _leaves((*key, str(part)), inner)
    else:
        yield key, value


def with_visible_gpus(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a file in which `auto` is replaced by a number for this host; nothing is validated yet."""
    if not has_automatic_gpus(settings):
        return settings
    count = len(visible_gpus())
    shown = f"shows {plural(count, 'GPU')}" if count else "shows no GPU; the ranks compute on CPUs"
    logger.info(f"parallel.gpus_per_rank: auto is {min(count, 1)}, because this host {shown}")
    return with_numbers_of_gpus(settings, count)


def has_automatic_gpus(settings: dict[str, Any]) -> bool:
    """Return True if a run has `auto`, as written or from the base."""
    return any(_has_auto(run) for run in (settings, *dict(_runs(settings)).values()))


def with_numbers_of_gpus(settings: dict[str, Any], count: int) -> dict[str, Any]:
    """Return settings in which `auto` is replaced by a number, if `count` GPUs are visible on each host.

    Raises UserError if a search varies the number of ranks, which the number of GPUs depends on.
    """
    if value_at(settings, "search", "space", "parallel.ranks"):
        raise UserError(
            "parallel.gpus_per_rank: auto does not fit a search over parallel.ranks; write 0 or 1 and ranks_per_gpu"
        )
    numbered: dict[str, Any] = merge_settings(
        settings, {"parallel": _numbers(settings, count)} if _has_auto(settings) else {}
    )
    for name, run in _runs(settings):
        own = settings["runs"][name]
        # The number of ranks or nodes may differ from the base.
        if _has_auto(run) and isinstance(own, dict) and ("parallel" in own or "resources" in own):
            numbered["runs"] = numbered["runs"] | {
                name: merge_settings(own, {"parallel": _numbers(run, count)})
            }
    return numbered


def _numbers(run: Mapping[str, Any], count: int) -> dict[str, int]:
    """Return the keys that replace `auto` in a run, if `count` GPUs are visible on each host."""

    def number(otherwise: int, *path: str) -> int:
        value = value_at(run, *path)
        # A mistake, which the validation reports, counts as the default.
        return value if isinstance(value, int) and value > 0 else otherwise

    if not count or value_at(run, "parallel", "transport") == "simulated":
        return {"gpus_per_rank": min(count, 1)}
    ranks = number(default(ParallelConfig, "ranks"), "parallel", "ranks")
    nodes = number(1, "resources", "nodes")
    sharing = max(number(1, "parallel", "ranks_per_gpu"), ceil(ceil(ranks / nodes) / count))
    return {"gpus_per_rank": 1} | ({"ranks_per_gpu": sharing} if sharing > 1 else {})


def _runs(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each named run merged into the base, as written."""
    runs = settings.get("runs")
    for name, changes in runs.items() if isinstance(runs, dict) else ():
        yield name, merge_settings(settings, changes if isinstance(changes, dict) else {})


def _has_auto(run: Any) -> bool:
    return bool(value_at(run, "parallel", "gpus_per_rank") == AUTO)


def refuse_automatic_gpus(path: str | Path, changes: Sequence[str] = ()) -> None:
    """Raise UserError if an experiment, whose jobs run on other hosts, has `gpus_per_rank: auto`."""
    settings, origins = read_yaml(Path(path))
    apply_overrides(settings, origins, changes)
    if has_automatic_gpus(settings):
        raise UserError(
            f"{path}: parallel.gpus_per_rank: auto counts the GPUs of this host, but the jobs run on hosts of a cluster, which "
            "has to know the number in advance; write 1, or 0 for CPUs"
        )
