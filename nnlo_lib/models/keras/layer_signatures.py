"""Classes of Keras 3 with their options, and errors of Keras as one sentence that begins with the layer."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from nnlo_lib.core.user_code import is_in_user_code

Config = dict[str, Any]
PLACES = ("layers", "initializers", "regularizers", "constraints")
KERAS_ERROR_CAUSE = "Exception encountered: "  # precedes the reason in the errors of Keras
UNKNOWN_CLASS = re.compile(r"Could not locate class '([^']+)'")
MAX_REASON_CHARS = 300  # errors of Keras contain whole configurations


def module_of_class(name: str) -> str | None:
    """Return the module of Keras 3 that contains a class of a network; None if there is no such class."""
    import keras

    if name == "Functional":
        return "keras.src.models.functional"
    if name == "Sequential":
        return "keras"
    found = [place for place in PLACES if inspect.isclass(getattr(getattr(keras, place), name, None))]
    return f"keras.{found[0]}" if found else None


@cache
def accepted_options(name: str) -> frozenset[str]:
    """Return the options of a class of Keras 3."""
    import keras

    module = str(module_of_class(name)).removeprefix("keras.")
    options: set[str] = set()
    for base in getattr(getattr(keras, module), name).__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters
        options.update(parameters)
        # Other options go to the base class.
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            break
    return frozenset(options - {"self", "args", "kwargs"})


def function_config(name: str) -> dict[str, Any]:
    """Return the configuration of a function that is passed as a custom object."""
    return {"module": None, "class_name": "function", "config": name, "registered_name": name}


def unknown_class_advice(name: str) -> str:
    """Return the error for a class that Keras does not have."""
    return (
        f"Keras 3 has no class {name}; if you have it, set `model.custom_objects: {{{name}: file.py:{name}}}`"
    )


@contextmanager
def with_all_frames() -> Iterator[None]:
    """Keep all frames in the tracebacks of Keras, which tell the layer."""
    import keras

    was_filtering = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        yield
    finally:
        if was_filtering:
            keras.config.enable_traceback_filtering()


def user_code_error(error: BaseException | None) -> BaseException | None:
    """Return the error that the user's code raised and Keras replaced by `error`; None if there is none."""
    while error is not None and not is_in_user_code(error):
        error = error.__cause__ or error.__context__
    return error


def refusal_text(config: Config, error: BaseException) -> str:
    """Return the layer that Keras cannot build or call, and the reason."""
    import keras

    for layer in _layers(config):
        try:
            keras.saving.deserialize_keras_object(layer)
        except Exception as alone:
            return f"layer {layer['config'].get('name')} ({layer['class_name']}): {_reason(alone)}"
    called = _called_layer(error)
    where = f"layer {called.name} ({type(called).__name__})" if called else "the network"
    return f"{where}: {_reason(error)}"


def _called_layer(error: BaseException) -> Any:
    """Return the innermost layer in the frames of an error, or None."""
    import keras

    trace, called = error.__traceback__, None
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        is_layer = isinstance(owner, keras.layers.Layer) and not isinstance(owner, keras.Model)
        called, trace = (owner if is_layer else called), trace.tb_next
    return called


def _layers(config: Config) -> Iterator[Config]:
    """Yield the layers of a model; of models inside it, their layers."""
    for layer in config["config"].get("layers", []):
        if isinstance(layer, dict) and isinstance(layer.get("config"), dict):
            yield from _layers(layer) if "layers" in layer["config"] else [layer]


def _reason(error: BaseException) -> str:
    """Return the reason of an error of Keras, without the configuration that it quotes."""
    reason = str(error).rpartition(KERAS_ERROR_CAUSE)[2]
    if unknown := UNKNOWN_CLASS.match(reason):
        return unknown_class_advice(unknown[1])
    return " ".join(reason.partition("\n\n")[0].split())[:MAX_REASON_CHARS] or type(error).__name__
