"""Networks of Keras 1 and 2 as configurations of Keras 3."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nnlo_lib.models.keras.keras_2_forms import merge_layer, separated_options, with_input_layer
from nnlo_lib.models.keras.keras_2_graph import graph_of_keras_3
from nnlo_lib.models.keras.keras_2_options import (
    CLASSES,
    DEFAULTS,
    FORGET_BIAS,
    NEUTRAL_VALUES,
    OPTIONS,
    OPTIONS_OF_CLASS,
    VALUES,
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_OF_CLASS,
)
from nnlo_lib.models.keras.layer_signatures import (
    accepted_options,
    function_config,
    module_of_class,
    unknown_class_advice,
)

Config = dict[str, Any]
CONTAINERS = ("Functional", "Sequential", "TimeDistributed", "Bidirectional")
HARD_SIGMOID = "hard_sigmoid_of_keras_2"


@dataclass(frozen=True)
class Keras2Translation:
    """Translates a layer, an initializer or any structure of them.

    Attributes:
        custom: the user's classes and functions by name; the options of these classes are kept.
    """

    custom: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, each: Any) -> Any:
        """Return the translated object. Raises ValueError if Keras 3 lacks a class or an option of it."""
        if isinstance(each, list):
            return [self(item) for item in each]
        if not isinstance(each, dict):
            return each
        if "class_name" not in each or "config" not in each:
            return {word: self(value) for word, value in each.items()}
        # Functions, and tensors in the graph of a model.
        if each["class_name"] in ("function", "__keras_tensor__"):
            return each
        if each["class_name"] in ("Policy", "PolicyV1"):
            return number_type(each)
        name = each["class_name"]
        name = name if name in self.custom else str(CLASSES.get(name, name))
        try:
            return self._object(name, each)
        except ValueError as error:
            layer = each.get("name") or (each["config"] or {}).get("name") if name not in CONTAINERS else None
            if layer is None or str(error).startswith("layer "):
                raise
            raise ValueError(f"layer {layer} ({each['class_name']}): {error}") from error

    def _object(self, name: str, each: Config) -> Config:
        config = each["config"]
        if name == "Sequential":
            config = with_input_layer(
                config if isinstance(config, dict) else {"name": "sequential", "layers": config}
            )
        elif name == "Merge":
            name, config = merge_layer(config)
        elif name in self.custom:
            given = {word: value for word, value in config.items() if word != "batch_input_shape"}
            config = {
                word: self._named(word, value) if isinstance(value, str) else value
                for word, value in given.items()
            }
        elif name == "Functional":
            config = graph_of_keras_3(config)
        else:
            config = dict(self._options(each["class_name"], name, config or {}))
        registered = name if name in self.custom else None
        return {
            "module": "custom" if registered else _module(name), "class_name": name, "config": self(config),
            "registered_name": registered,
            **{word: value for word, value in each.items() if word in ("name", "inbound_nodes")},
        }  # fmt: skip

    def _options(self, old: str, name: str, config: Config) -> Iterator[tuple[str, Any]]:
        """Yield the options of an object in Keras 3.

        Args:
            old: its class in the file.
            name: its class in Keras 3.
            config: its options in the file.
        """
        _module(name)  # raises ValueError if there is no such class
        accepted = accepted_options(name)
        for word, value in separated_options(name, DEFAULTS.get(old, {}) | config):
            option = OPTIONS_OF_CLASS.get(name, {}).get(word) or OPTIONS.get(word, word)
            if option in accepted:
                yield option, self._value(option, value)
            elif not _has_no_effect(name, option, value):
                raise ValueError(f"Keras 3 does not support {word}: {value!r}")

    def _value(self, option: str, value: Any) -> Any:
        if option == "dtype":
            return number_type(value)
        if option == "unit_forget_bias" and isinstance(value, str):
            if value not in FORGET_BIAS:
                raise ValueError(f"Keras 3 does not support forget_bias_init: {value!r}")
            return FORGET_BIAS[value]
        # Keras 1 writes the name of a regularizer or a constraint beside its options.
        if isinstance(value, dict) and "name" in value and "class_name" not in value:
            rest = {word: number for word, number in value.items() if word != "name"}
            return {"class_name": value["name"], "config": rest}
        if isinstance(value, str):
            return self._named(option, VALUES.get(option, {}).get(value, value))
        return value

    def _named(self, option: str, name: str) -> Any:
        """Return the value of an option that may be the name of a function or a class."""
        if option.endswith("activation") and name == "hard_sigmoid" and name not in self.custom:
            return function_config(HARD_SIGMOID)
        if option.rpartition("_")[2] not in ("activation", "initializer", "regularizer", "constraint"):
            return name
        if name not in self.custom:
            return name
        is_class = inspect.isclass(self.custom[name])
        return {"class_name": name, "config": {}} if is_class else function_config(name)


def hard_sigmoid_of_keras_2(values: Any) -> Any:
    """Return max(0, min(1, 0.2 x + 0.5)); the function of Keras 3 has the slope 1/6."""
    import keras

    return keras.ops.clip(0.2 * values + 0.5, 0.0, 1.0)


def number_type(value: Any) -> Any:
    """Return the type of a layer's numbers. Raises ValueError if it is a mixture of types."""
    name = value["config"]["name"] if isinstance(value, dict) else value
    if str(name).startswith("mixed_"):
        raise ValueError(f"dtype {name} is not supported; write float32, and set train.precision")
    return name


def _module(name: str) -> str:
    """Return the module of a class. Raises ValueError if Keras 3 has no such class."""
    module = module_of_class(name)
    if name == "Lambda":
        raise ValueError(
            "code in a file is not executed; write the layer as a class, and set `model.custom_objects: "
            "{Lambda: file.py:Class}`"
        )
    if module is None:
        raise ValueError(unknown_class_advice(name))
    return module


def _has_no_effect(name: str, option: str, value: Any) -> bool:
    """Return True if a network without an option computes the same.

    Args:
        name: class in Keras 3.
        option: an option that the class does not have.
        value: its value in the file.
    """
    without = WITHOUT_EFFECT | WITHOUT_EFFECT_OF_CLASS.get(name, set())
    return value is None or option in without or value in NEUTRAL_VALUES.get(option, ())
