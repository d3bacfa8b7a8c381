"""Options that the classes of Keras 3 accept."""

import inspect
from functools import cache
from typing import Any

PLACES = ("layers", "initializers", "regularizers", "constraints")


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
