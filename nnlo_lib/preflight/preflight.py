"""All checks of an experiment before anything starts: functions and their arguments, data, models, this machine."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.base import UserClassConfig, load_user_object, suggest_name
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.metrics import SET_PREFIX
from nnlo_lib.config.reader import ArraysReaderConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import plural
from nnlo_lib.core.user_code import load_implementation, split_function_reference
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.checks import Mistake
from nnlo_lib.experiment.load import load_with_origins, refusal
from nnlo_lib.experiment.owner import refuse_other_owner
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.models.zoo_registry import MODELS, library_of
from nnlo_lib.preflight.data_check import (
    Mistakes,
    check_sample_counts,
    check_source,
    check_targets,
    class_counts,
    distinct_runs,
    expected_manifest,
)
from nnlo_lib.preflight.passed_checks import passed_before, remember_passed
from nnlo_lib.preflight.setting_warnings import (
    MAX_LISTED_CLASSES,
    check_variables,
    large_inputs,
    stray_class,
    written_secrets,
)
from nnlo_lib.search.effect import end_points, same_training
from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.space.validate import extremes
from nnlo_lib.search.study.snapshot import StudySnapshot

logger = get_logger(__name__)
MODEL_SECTIONS = {"data", "model", "problem", "loss", "loss_weights", "metrics"}
SEARCH = "search"  # label of the base of a search; no run can have this name
SHAPE_AND_CLASSES = ("shape", "classes")
ARGUMENT_KEY = "model.args."


def load_and_check(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Return the experiment in a file after all checks, as `load_experiment` and `check_experiment` do.

    Raises UserError as these do, and if its results folder belongs to another file.
    """
    experiment, origins = load_with_origins(path, changes)
    refuse_other_owner(experiment.name, str(path))
    check_experiment(experiment, origins)
    return experiment


def check_experiment(experiment: Experiment, origins: Mapping[KeyPath, str] | None = None) -> None:
    """Raise UserError with all mistakes of an experiment that can be found without training.

    Args:
        origins: `file:line` of each written key; None for an experiment that was not read from a file.
    """
    runs = {} if experiment.search and not experiment.runs else experiment.variants
    found = [
        *_mistakes(experiment, runs),
        # Only the mistakes that all tried parameters of the space have: a trial that fails is no mistake of the search.
        *min((_mistakes(experiment, {SEARCH: run}) for run in _trials(experiment)), key=len, default=[]),
    ]
    if found:
        raise refusal(dict.fromkeys(found), origins or {(): experiment.name})
    doubts = (each for run in runs.values() for each in run.algorithm.doubts(run))
    for doubt in dict.fromkeys([*doubts, *written_secrets(experiment, runs)]):
        logger.warning(doubt)
    _warn_about_search(experiment)


def _warn_about_search(experiment: Experiment) -> None:
    """Log a warning for each searched key whose first and last value give the same training, or the same network."""
    base = next(iter(_trials(experiment)), None)
    if experiment.search is None or base is None:
        return
    settings, manifest = base.model_dump(mode="json", exclude_unset=True), None
    for key in experiment.search.space:
        points = end_points(experiment.search.space, key)
        if same_training(experiment, key):
            logger.warning(
                f"search.space.{key}: has no effect on the training; all its values give the same result"
            )
        if not points or not key.startswith(ARGUMENT_KEY) or base.model.is_network_file:
            continue
        from nnlo_lib.preflight.model_check import have_equal_networks

        if (manifest := manifest or expected_manifest(base)) is None:
            return
        ends = [Run.model_validate(merge_settings(settings, nested(point))) for point in points]
        if have_equal_networks(ends, manifest):
            model, (first, last), name = base.model.name, points, key.removeprefix(ARGUMENT_KEY)
            function = load_user_object(model, "function") if ".py" in model else None
            # Names that `**args` is read with are constants of the function.
            code, signature = getattr(function, "__code__", None), _signature(function)
            names = [*(signature.parameters if signature else ()), *(code.co_consts if code else ())]
            known = {each for each in names if isinstance(each, str) and each.isidentifier()}
            hint = f"; {suggest_name(name, known)}" if known and name not in known else ""
            logger.warning(
                f"search.space.{key}: has no effect: {model} gives the same network for {first[key]} and {last[key]}{hint}"
            )


def _mistakes(experiment: Experiment, runs: Mapping[str, Run]) -> list[Mistake]:
    """Return the mistakes of some runs of an experiment."""

    def found(check: Callable[[Run, Mistakes], None], identity: Callable[[Run], str]) -> list[Mistake]:
        every: list[Mistake] = []
        for name, run in distinct_runs(runs, identity):
            mistakes = Mistakes(experiment, name)
            check(run, mistakes)
            every += mistakes
        return every

    def sections(*names: str) -> Callable[[Run], str]:
        return lambda run: run.model_dump_json(include=set(names))

    first = [
        *found(_check_arguments, sections("model", "loss", "metrics", "data")),
        *found(check_variables, sections("data", "resources", "observe")),
    ]
    # A source is not read with adaptors that cannot be loaded, or at a place that is not known.
    if not any("adaptor" in key[-1] or key[-1] == "source" for key, _ in first):
        first += found(
            check_source, lambda run: run.model_dump_json(include={"data": {"dataset", "source", "reader"}})
        )
    # A model is not tried with functions or data that cannot be read: its error would only repeat theirs.
    return first or [
        *found(_check_own_classes, sections("algorithm", "compression", "parallel")),
        *_search_mistakes(experiment),
        *found(_check_data_and_model, _identity),
    ]


def _trials(experiment: Experiment) -> list[Run]:
    """Return the base of the search with the first, and the last, of the values for arguments of the model.

    Arguments that the experiment sets itself keep their value.
    """
    if not experiment.search:
        return []
    searched = {
        key: extremes(dimension)
        for key, dimension in experiment.search.space.items()
        if key.startswith(ARGUMENT_KEY) and key.removeprefix(ARGUMENT_KEY) not in experiment.model.args
    }
    ends = ({key: values[end] for key, values in searched.items()} for end in (0, -1))
    points = [nested(point) for point in ends] if searched else [{}]
    return [Run.model_validate(merge_settings(experiment.settings, point)) for point in points]


def _check_arguments(run: Run, mistakes: Mistakes) -> None:
    """Check the names and arguments of the functions of the model, the losses, the metrics and the adaptors."""
    _check_model(run, mistakes)
    pair, reader = ("real", "fake") if run.problem.name == "gan" else ("outputs", "targets"), run.data.reader
    losses = run.loss.items() if isinstance(run.loss, dict) else [("", run.loss)]
    functions: dict[KeyPath, tuple[str, tuple[str, ...]]]
    functions = {("loss", *filter(None, [output])): (name, pair) for output, name in losses}
    for index, name in enumerate(run.metrics):
        functions["metrics", str(index)] = name.partition("@")[0].removeprefix(SET_PREFIX), pair
    if isinstance(reader, ArraysReaderConfig):
        functions["data", "reader", "adaptor"] = reader.adaptor or "", ("features",)
        functions["data", "reader", "label_adaptor"] = reader.label_adaptor or "", ("labels",)
    for key, (reference, arguments) in functions.items():
        if ".py:" in reference and (signature := _signature(_load(key, reference, mistakes))):
            try:
                signature.bind(*arguments)
            except TypeError as error:
                mistakes.add(key, f"must accept ({', '.join(arguments)}): {error}")


def _check_model(run: Run, mistakes: Mistakes) -> None:
    """Check the function of the model and `model.args`."""
    model = run.model
    # The package of a library's network checks its arguments when it builds the network.
    if model.is_network_file or library_of(model.name):
        return
    in_zoo, facts = model.name in MODELS, f"arguments {model.model_dump_json()}"
    if in_zoo and passed_before(facts):
        return
    function = (
        load_implementation(MODELS[model.name]) if in_zoo else _load(("model", "name"), model.name, mistakes)
    )
    if (signature := _signature(function)) is None:
        return
    # A module in NNLO's form knows the shape itself.
    positional = () if model.name.endswith(".py") else SHAPE_AND_CLASSES
    names = [name for name in signature.parameters if name not in positional]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    unknown = [] if takes_any else [name for name in model.args if name not in names]
    for name in unknown:
        hint = suggest_name(name, names) if names else "it takes no arguments"
        mistakes.add(("model", "args", name), f"{model.name} has no argument '{name}'; {hint}")
    if unknown:
        return
    try:
        signature.bind(*positional, **model.args)
    except TypeError as error:
        called = ", ".join([*positional, *model.args]) or "no arguments"
        hint = (
            "; define it as (shape, classes, **args), where shape is that of one sample" if positional else ""
        )
        mistakes.add(("model", "args"), f"{model.name} called with {called}: {error}{hint}")
    else:
        if in_zoo:
            remember_passed(facts)


def _load(key: KeyPath, reference: str, mistakes: Mistakes) -> Any:
    """Return the function of `path.py:function` or `path.py`, or None after adding the mistake for which it cannot be loaded."""
    with mistakes.collected(*key):
        function = load_user_object(reference, "function")
        if callable(function):
            return function
        path, name = split_function_reference(reference)
        raise UserError(f"{name} in {path} is no function but {type(function).__name__}")


def _signature(function: Any) -> inspect.Signature | None:
    """Return the signature of a function; None if it has none that Python knows."""
    with suppress(ValueError):
        return inspect.signature(function) if callable(function) else None
    return None


def _check_own_classes(run: Run, mistakes: Mistakes) -> None:
    """Build the user's algorithm and compressor."""
    own = [key for key in ("algorithm", "compression") if isinstance(getattr(run, key), UserClassConfig)]
    if own:
        # They import torch.
        from nnlo_lib.algorithms.factory import build_algorithm
        from nnlo_lib.comm.simulated.communicator import SimulatedWorld

        with mistakes.collected_of_user(own[0], "name"):
            SimulatedWorld(run.parallel.ranks).run(partial(build_algorithm, run, seed=0))


def _search_mistakes(experiment: Experiment) -> Mistakes:
    """Build the user's sampler and pruner."""
    mistakes, search, epochs = Mistakes(experiment, SEARCH), experiment.search, experiment.train.epochs
    if search and isinstance(search.method, UserClassConfig):
        with mistakes.collected_of_user(SEARCH, "method", "name"):
            build_sampler(search)(0, StudySnapshot(search, epochs, (), {}))
    if search and isinstance(search.fidelity, UserClassConfig):
        with mistakes.collected_of_user(SEARCH, "fidelity", "name"):
            build_pruner(search.fidelity).rungs(0, epochs)
    return mistakes


def _check_data_and_model(run: Run, mistakes: Mistakes) -> None:
    """Check the model on the data, and log what is worth a look if there is no mistake."""
    with mistakes.collected("data", "reader"):
        if (manifest := expected_manifest(run)) is None:
            logger.info(
                f"{run.data.dataset}: the model is checked after the conversion, because the samples are unknown"
            )
            return
        check_sample_counts(run, manifest, mistakes)
        check_targets(run, manifest, mistakes)
        _check_model_with_data(run, manifest, mistakes)
        # No warning before an error.
        if not mistakes:
            for doubt in filter(None, (large_inputs(run, manifest), stray_class(run, manifest))):
                logger.warning(doubt)


def _check_model_with_data(run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Check the model on a batch, unless that has passed before and reads no file of the user or of another package."""
    facts = (_identity(run), repr((manifest.inputs, manifest.labels, manifest.classes, manifest.scale)))
    only_ours = run.model.name in MODELS and not run.model.is_network_file and not run.input_files
    if only_ours and passed_before(*facts):
        return
    # torch is imported only for an experiment without other mistakes.
    from nnlo_lib.preflight.model_check import check_model

    if check_model(run, manifest, mistakes) and only_ours:
        remember_passed(*facts)


def _identity(run: Run) -> str:
    """Return the settings that the checks of data and model read, as text."""
    train = run.model_dump_json(include={"train": {"precision", "batch_size", "steps_per_epoch", "dealing"}})
    workers = run.parallel.ranks - run.algorithm.servers
    return f"{run.model_dump_json(include=MODEL_SECTIONS)} {train} {workers}"


def class_lines(experiment: Experiment) -> Iterator[str]:
    """Yield the samples by class of each data set of the user, for an experiment without mistakes."""
    for _, run in distinct_runs(experiment.variants, lambda run: run.data.model_dump_json()):
        manifest, data = expected_manifest(run), run.data.dataset
        if manifest is None or manifest.classes is None or data in CATALOG:
            continue
        names, counts = manifest.class_labels, class_counts(run, manifest)
        if counts is None:
            yield f"{data}: {len(names):,} classes; their samples are counted after the conversion, by `nnlo data FILE`"
        for split, found in (counts or {}).items():
            listed = ", ".join(f"{name}: {count:,}" for name, count in zip(names, found, strict=True))
            spread = f"{found.min():,} to {found.max():,} samples each of {len(names):,} classes"
            yield f"{data}, {split}: {listed if len(names) <= MAX_LISTED_CLASSES else spread}"


def warn_about_machine(experiment: Experiment) -> None:
    """Log a warning for each run that this machine cannot run well."""
    for warning in machine_warnings(experiment.variants):
        logger.warning(warning)


def machine_warnings(runs: Mapping[str, Run]) -> list[str]:
    """Return a warning for each run on one node that needs more cores or GPUs than this machine has."""
    found, cores = [], len(os.sched_getaffinity(0))
    for name, run in runs.items():
        needs = RunResources(run)
        workers = needs.processes - (
            run.algorithm.servers if needs.processes > 1 else 0
        )  # a server mostly waits
        if needs.nodes > 1:
            continue
        if workers * needs.threads_per_process > cores:
            threads = f"{plural(workers, 'worker')} with {plural(needs.threads_per_process, 'thread')} each"
            found.append(f"run {name}: {threads} on the {cores} cores of this machine will be slow")
        elif needs.gpus:
            import torch

            if needs.gpus > (count := torch.cuda.device_count()):
                found.append(
                    f"run {name}: parallel.gpus_per_rank needs {plural(needs.gpus, 'GPU')}, but this machine has {count}"
                )
    return found
