"""Mistakes of an experiment, each with its key: sentences for validation errors, and checks of keys together."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types, merge_settings, suggest_name
from nnlo_lib.config.base import BUILT_IN, USER_CLASS, USER_CLASS_PATTERN, UserClassConfig, value_at
from nnlo_lib.config.paths import BEST_RUN, SEARCH_FOLDER, ExperimentPaths
from nnlo_lib.config.rules.combinations import unused_settings
from nnlo_lib.config.rules.key_names import OTHER_ALGORITHMS, unknown_key
from nnlo_lib.config.rules.loss_rules import unvalidated_metrics
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.models.zoo_registry import missing_library

Mistake = tuple[KeyPath, str]
Settings = Mapping[str, Any]  # the experiment as written in the file
NO_SECTION = "must be a section of keys, such as {{key: value}}, not {given}"
# Of pydantic's types of errors.
SENTENCES = {
    "refused": "{message}",
    "literal_error": "must be one of {expected}, not {given}",
    "union_tag_not_found": "missing `name`; add `name: ...` to select the kind (docs/reference/experiment.md)",
    "too_short": "needs at least {min_length} valid value, not {given}",
    "missing": "missing; set this key",
    "none_required": "not supported; remove this key",
    "string_pattern_mismatch": "must consist of up to 200 letters, digits, '_', '.' or '-', not {given}, because it names a folder",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), NO_SECTION),
}
PERIODIC = re.compile(r"(.+)\1{19}$")  # Snakemake's PeriodicWildcardError


def validation_mistakes(model: type[ConfigModel], settings: Any) -> Iterator[Mistake]:
    """Yield the mistakes for which the model rejects these settings."""
    try:
        model.model_validate(settings)
    except ValidationError as error:
        yield from describe_validation_error(model, error)


def describe_validation_error(model: type[ConfigModel], error: ValidationError) -> Iterator[Mistake]:
    """Yield a message for each rejected key; errors inside a section replace the error of the section itself."""
    sentences: dict[KeyPath, list[str]] = {}
    refused = {_follow(model, each["loc"])[0] for each in error.errors() if each["type"] == "refused"}
    for detail in error.errors():
        key, known = _follow(model, detail["loc"])
        # A member of a union that refuses a value has understood it; the others only have another type.
        if key in refused and detail["type"] != "refused":
            continue
        # The key of the error relative to pydantic's location, usually empty.
        below = ("name",) if detail["type"] == "union_tag_invalid" else detail.get("ctx", {}).get("at", ())
        sentences.setdefault((*key, *below), []).append(_sentence(detail, key, known))
    sections = {key[:depth] for key in sentences for depth in range(len(key))}
    yield from ((key, "; or ".join(each)) for key, each in sentences.items() if key not in sections)


def _follow(model: type[ConfigModel], location: Iterable[str | int]) -> tuple[KeyPath, set[str]]:
    """Return the key in the file for pydantic's location, and the known names of its section.

    Pydantic's location also contains the name of a union's member, and `[key]`, which the file does not contain.
    """
    key: KeyPath = ()
    inside, known, untagged, keyed = [model], set[str](), False, False
    for part in location:
        if keyed:
            # Key of a mapping, for example the name of a run.
            key, keyed = (*key, str(part)), False
        elif part in (BUILT_IN, USER_CLASS) and inside:
            inside = [block for block in inside if issubclass(block, UserClassConfig) == (part == USER_CLASS)]
        # In a union of sections with names, pydantic inserts the name of the selected section.
        elif len(inside) > 1:
            inside = [block for block in inside if block.model_fields["name"].default == part]
        # In a union of types without names, pydantic inserts the name of the type.
        elif untagged:
            untagged = False
        # Pydantic marks an error in a key of a mapping by `[key]`.
        elif part != "[key]":
            fields = {name: field for block in inside for name, field in block.model_fields.items()}
            annotation = fields[str(part)].annotation if part in fields else None
            inside, untagged = list(block_types(annotation)), _is_untagged(annotation)
            keyed = get_origin(annotation) is dict
            key, known = (*key, str(part)), set(fields)
    return key, known


def _is_untagged(annotation: Any) -> bool:
    """Return True for a union of several types of which at most one is a ConfigModel."""
    members = [member for member in get_args(annotation) if member is not NoneType]
    return (
        get_origin(annotation) in (Union, UnionType)
        and len(members) > 1
        and len(list(block_types(annotation))) < 2
    )


def _sentence(detail: ErrorDetails, key: KeyPath, known: Iterable[str]) -> str:
    context, given, kind = detail.get("ctx", {}), shown(detail["input"]), detail["type"]
    if kind == "extra_forbidden":
        return unknown_key(".".join(key), known)
    if kind == "union_tag_invalid":
        names = context["expected_tags"].replace("'", "").split(", ")
        own = f", or path.py:{'function' if key[-2:] == ('data', 'reader') else 'Class'} of your own"
        meant = OTHER_ALGORITHMS.get(str(context["tag"]).lower()) if key[-1:] == ("algorithm",) else None
        hint = f"write `algorithm: {meant}`" if meant else suggest_name(str(context["tag"]), names)
        return f"unknown name '{context['tag']}'; {hint}{own if BUILT_IN in detail['loc'] else ''}"
    if kind == "string_type" and given in ("null", "true", "false"):
        return f"must be a text, not {given}; write it in quotes, as it is in the file"
    if kind == "string_pattern_mismatch" and context["pattern"] == USER_CLASS_PATTERN:
        return f"must be path.py:function, not {given}"
    if kind in SENTENCES:
        return SENTENCES[kind].format(**context, given=given)
    return f"{detail['msg'].replace('Input should', 'should').replace('tuple', 'list')} (this is {given})"


def shown(value: Any) -> str:
    """Return a value of the file as JSON, shortened to fit a line."""
    return textwrap.shorten(json.dumps(value, default=str, ensure_ascii=False), 60)


def find_mistakes(experiment: Experiment, settings: Settings) -> list[Mistake]:
    """Return the mistakes that the first failing check finds; later checks rely on the earlier ones.

    Experiment.variants, which later checks read, fails for a run with a mistake that `_run_mistakes` reports. The search
    is last, because it validates trials of the space on top of a valid base.
    """
    checks = (
        _name_mistakes,
        _run_mistakes,
        partial(_unused_mistakes, settings),
        _variant_mistakes,
        _search_mistakes,
    )
    return next(filter(None, (list(check(experiment)) for check in checks)), [])


def _name_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    """Yield runs with the name of a file or folder of the experiment, and names that Snakemake refuses."""
    names = {("runs", name): name for name in experiment.runs}
    for key, name in (names | {("data", "dataset"): experiment.data.dataset}).items():
        if PERIODIC.search(name):
            yield (
                key,
                "Snakemake takes a name that ends with 20 times the same text for an endless one; shorten it",
            )
    for name in ExperimentPaths.reserved_names(experiment.search is not None) & experiment.runs.keys():
        owner = "the search" if name in (BEST_RUN, SEARCH_FOLDER) else "a file of the experiment"
        yield ("runs", name), f"this name is reserved for {owner}; rename the run"


def _run_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    """Yield the mistakes of each run after merging its overrides."""
    base = experiment.settings
    for name, changes in experiment.runs.items():
        for key, message in validation_mistakes(Run, merge_settings(base, changes)):
            yield ("runs", name, *key), message


def _unused_mistakes(settings: Settings, experiment: Experiment) -> Iterator[Mistake]:
    """Yield settings of one run that its algorithm ignores, and shared settings that all runs ignore."""
    runs = {name: dict(map(located, unused_settings(run))) for name, run in experiment.variants.items()}
    for name, faults in runs.items():
        own = (key for key in faults if value_at(settings, "runs", name, *key) is not None)
        yield from ((("runs", name, *key), faults[key]) for key in own)
    # Another algorithm that the search chooses can use what the algorithm of the base ignores.
    if experiment.search is None or "algorithm.name" not in experiment.search.space:
        # A search varies the base, which is one more run if there are named runs.
        base = [dict(map(located, unused_settings(experiment)))] if experiment.search else []
        first, *others = [*runs.values(), *base]
        shared = (key for key in first if all(key in faults for faults in others))
        yield from ((key, first[key]) for key in shared if value_at(settings, *key) is not None)


def located(fault: str) -> Mistake:
    """Return key and sentence of a fault, `key: sentence`."""
    key, _, text = fault.partition(": ")
    return tuple(key.split(".")), text


def _variant_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    """Yield what runs lack: validation samples, packages that are installed, a graph that suits their algorithm."""
    for name, run in experiment.variants.items():
        # With folds, the held-out fold is the validation set, whatever `data.validation` is.
        faults = list(unvalidated_metrics(run)) if experiment.folds == 1 else []
        if missing := missing_library(run.model.name):
            faults.append(f"model.name: {missing}")
        faults += [f"observe.{key}: {missing}" for key, missing in run.observe.missing_packages.items()]
        if run.algorithm.capabilities.graph_properties:
            # Imported only for runs with a graph, so that other experiments are checked faster.
            from nnlo_lib.topology.topology import topology_error

            fault = next(filter(None, (topology_error(run, seed) for seed in experiment.seeds)), None)
            # The fault begins with its key, unless it concerns the whole graph.
            faults += [fault if fault.startswith("topology.") else f"topology: {fault}"] if fault else []
        # The settings of the only run are those of the experiment.
        above = ("runs", name) if experiment.runs else ()
        yield from (((*above, *key), text) for key, text in map(located, faults))


def _search_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    """Yield the mistakes of the search, for example values that no run accepts, or else its keys that no trial uses."""
    if experiment.search is None:
        return
    from nnlo_lib.search.effect import unused_reason
    from nnlo_lib.search.space.validate import find_search_mistakes

    ranged = with_model_parameter_ranges(experiment)
    found = list(find_search_mistakes(ranged, lambda run: validation_mistakes(Run, run)))
    yield from found
    for key in [] if found else experiment.search.space:
        if what := unused_reason(experiment, key):
            yield ("search", "space", key), what


def with_model_parameter_ranges(experiment: Experiment) -> Experiment:
    """Return the experiment with the ranges that the model's function defines added to its search space.

    Ranges written in the experiment take precedence.
    """
    if experiment.search is None:
        return experiment
    from nnlo_lib.search.space.scales import read_model_space

    space = read_model_space(experiment.model) | experiment.search.space
    return experiment.model_copy(update={"search": experiment.search.model_copy(update={"space": space})})
