"""Layers that have another form in Keras 1 and 2 than in Keras 3: inputs, merges, joined options."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.models.keras.keras_2_options import MERGE_LAYERS

Config = dict[str, Any]


def separated_options(name: str, config: Config) -> Iterator[tuple[str, Any]]:
    """Yield the options of a layer, those that Keras 3 joins or separates in its form.

    Args:
        name: class in Keras 3.
        config: options in the file.
    """
    sides = [
        word for word in ("nb_row", "nb_col", "kernel_dim1", "kernel_dim2", "kernel_dim3") if word in config
    ]
    if sides:
        yield "kernel_size", [config[word] for word in sides]
    for word, value in config.items():
        if word == "init" and name.startswith("SeparableConv"):
            yield from ((f"{part}_initializer", value) for part in ("depthwise", "pointwise"))
        elif word == "padding" and isinstance(value, list) and len(value) == 4:
            yield word, [value[:2], value[2:]]
        elif word == "axis" and isinstance(value, list) and len(value) == 1:
            yield word, value[0]
        elif word not in sides:
            yield word, value


def with_input_layer(config: Config) -> Config:
    """Add an input layer to a Sequential model if its first layer declares the shape of the input."""
    layers = config["layers"]
    first = layers[0] if layers else {"class_name": "", "config": {}}
    options = first["config"] if isinstance(first["config"], dict) else {}
    inner = options.get("layer") or {}  # of a wrapper such as TimeDistributed
    shape = options.get("batch_input_shape") or inner.get("config", {}).get("batch_input_shape")
    if shape is None or first["class_name"] == "InputLayer":
        return config
    return {
        **config,
        "layers": [
            {"class_name": "InputLayer", "config": {"batch_input_shape": shape, "name": "input"}},
            *layers,
        ],
    }


def merge_layer(config: Config) -> tuple[str, Config]:
    """Return the class and the options in Keras 3 of a layer Merge of Keras 1."""
    mode = config.get("mode")
    if mode not in MERGE_LAYERS or config.get("layers"):
        raise ValueError(f"Keras 3 does not support mode: {mode!r} of Merge")
    name = MERGE_LAYERS[mode]
    option = {"Concatenate": ("axis", "concat_axis"), "Dot": ("axes", "dot_axes")}.get(name)
    given = {option[0]: config[option[1]]} if option and option[1] in config else {}
    return name, {"name": config["name"], **given}
