"""Check that the user's functions can be loaded, and that functions accept the arguments of the experiment."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.reader import ArraysReaderConfig
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.core.user_code import error_with_source_line, load_user_module, split_function_reference
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.models.libraries.library_names import library_of
from nnlo_lib.models.zoo_registry import MODELS
from nnlo_lib.preflight.mistake import Mistakes, distinct_runs

SHAPE_AND_CLASSES = ("shape", "classes")
ARGUMENT_KEY = "model.args."


def check_arguments(experiment: Experiment, runs: Mapping[str, Run]) -> list[Mistakes]:
    """Return the mistakes in the names and arguments of the functions that the runs name."""
    found = []
    for name, run in distinct_runs(runs, _identity):
        mistakes = Mistakes(experiment, name)
        _check_model(run, mistakes)
        for key, reference, arguments in _user_functions(run):
            _check_call(key, _load(key, reference, mistakes), arguments, mistakes)
        found.append(mistakes)
    return found


def _identity(run: Run) -> str:
    return run.model_dump_json(include={"model", "loss", "metrics", "data"})


def _check_model(run: Run, mistakes: Mistakes) -> None:
    """Check the function of the model and `model.args`."""
    model = run.model
    # The package of a library's network checks its arguments when it builds the network.
    if model.is_network_file or library_of(model.name):
        return
    in_zoo = model.name in MODELS
    function = (
        load_implementation(MODELS[model.name]) if in_zoo else _load(("model", "name"), model.name, mistakes)
    )
    parameters = _parameters(function)
    if function is None or parameters is None:
        return
    # A module in NNLO's form knows the shape itself.
    positional = () if model.name.endswith(".py") else SHAPE_AND_CLASSES
    names = [name for name in parameters if name not in positional]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    unknown = [] if takes_any else [name for name in model.args if name not in names]
    for name in unknown:
        hint = suggest_name(name, names) if names else "it takes no arguments"
        mistakes.add(("model", "args", name), f"{model.name} has no argument '{name}'; {hint}")
    if not unknown:
        try:
            inspect.signature(function).bind(*positional, **model.args)
        except TypeError as error:
            called = ", ".join([*positional, *model.args]) or "no arguments"
            mistakes.add(("model", "args"), f"{model.name} called with {called}: {error}")


def _parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a function; None if it has none that Python knows."""
    try:
        return dict(inspect.signature(function).parameters) if callable(function) else None
    except ValueError:
        return None


def _user_functions(run: Run) -> list[tuple[KeyPath, str, tuple[str, ...]]]:
    """Return key, `path.py:function` and positional arguments of losses, metrics and adaptors."""
    pair = ("real", "fake") if run.problem.name == "gan" else ("outputs", "targets")
    losses = run.loss.items() if isinstance(run.loss, dict) else [("", run.loss)]
    found: list[tuple[KeyPath, str | None, tuple[str, ...]]] = [
        *((("loss", *([output] if output else [])), name, pair) for output, name in losses),
        *((("metrics", str(index)), name.partition("@")[0], pair) for index, name in enumerate(run.metrics)),
    ]
    if isinstance(run.data.reader, ArraysReaderConfig):
        reader = run.data.reader
        found.append((("data", "reader", "adaptor"), reader.adaptor, ("features",)))
        found.append((("data", "reader", "label_adaptor"), reader.label_adaptor, ("labels",)))
    return [(key, name, arguments) for key, name, arguments in found if name and ".py:" in name]


def _load(key: KeyPath, reference: str, mistakes: Mistakes) -> Callable[..., Any] | None:
    """Return the user's function, or None after adding the mistake for which it cannot be loaded.

    Args:
        key: key of the reference.
        reference: `path.py:function`, or `path.py`.
        mistakes: list to which mistakes are added.
    """
    path, name = split_function_reference(reference)
    try:
        module = load_user_module(path)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        mistakes.add(key, f"{path} cannot be loaded: {error_with_source_line(error)}")
        return None
    function = getattr(module, name, None)
    if callable(function):
        return cast(Callable[..., Any], function)
    if function is not None:
        mistakes.add(key, f"{name} in {path} is no function but {type(function).__name__}")
    else:
        own = [
            each
            for each, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        ]
        mistakes.add(
            key, f"{path} has no function '{name}'; {suggest_name(name, own) if own else 'it defines none'}"
        )
    return None


def _check_call(key: KeyPath, function: Any, arguments: tuple[str, ...], mistakes: Mistakes) -> None:
    """Check that a function accepts positional arguments.

    Args:
        key: key of the function.
        function: the function; None if it could not be loaded.
        arguments: names of the arguments that NNLO passes.
        mistakes: list to which mistakes are added.
    """
    if _parameters(function) is None:
        return
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        mistakes.add(key, f"must accept ({', '.join(arguments)}): {error}")
