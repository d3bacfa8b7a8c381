"""Networks of Keras 1 and 2 as configurations of Keras 3: classes, options, and the graph of a functional model."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nnlo_lib.models.keras.layer_signatures import (
    accepted_options,
    function_config,
    module_of_class,
    unknown_class_advice,
)

Config = dict[str, Any]
MODELS = ("Model", "Functional", "Sequential")
CONTAINERS = ("Functional", "Sequential", "TimeDistributed", "Bidirectional")
HARD_SIGMOID = "hard_sigmoid_of_keras_2"
CLASSES = {  # classes whose name changed
    "Model": "Functional", "Convolution1D": "Conv1D", "Convolution2D": "Conv2D", "Convolution3D": "Conv3D",
    "AtrousConvolution1D": "Conv1D", "AtrousConvolution2D": "Conv2D", "SeparableConvolution2D": "SeparableConv2D",
    "TimeDistributedDense": "Dense", "ThresholdedReLU": "ReLU", "CuDNNGRU": "GRU", "CuDNNLSTM": "LSTM",
    "UnifiedGRU": "GRU", "UnifiedLSTM": "LSTM", "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "WeightRegularizer": "L1L2", "ActivityRegularizer": "L1L2", "L1L2Regularizer": "L1L2",
}  # fmt: skip
OPTIONS = {  # options of any layer
    "nb_filter": "filters", "output_dim": "units", "p": "rate", "sigma": "stddev", "border_mode": "padding",
    "subsample": "strides", "subsample_length": "strides", "filter_length": "kernel_size", "pool_length": "pool_size",
    "stride": "strides", "atrous_rate": "dilation_rate", "bias": "use_bias", "init": "kernel_initializer",
    "inner_init": "recurrent_initializer", "gamma_init": "gamma_initializer", "beta_init": "beta_initializer",
    "inner_activation": "recurrent_activation", "forget_bias_init": "unit_forget_bias", "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout", "dim_ordering": "data_format", "W_regularizer": "kernel_regularizer",
    "U_regularizer": "recurrent_regularizer", "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint", "U_constraint": "recurrent_constraint", "b_constraint": "bias_constraint",
}  # fmt: skip
OPTIONS_OF_CLASS = {  # options with another name in layers of this class
    "Embedding": {
        "input_dim": "input_dim", "output_dim": "output_dim", "init": "embeddings_initializer",
        "W_regularizer": "embeddings_regularizer", "W_constraint": "embeddings_constraint",
    },
    "InputLayer": {"batch_input_shape": "batch_shape", "input_dtype": "dtype"},
    "LeakyReLU": {"alpha": "negative_slope"}, "PReLU": {"init": "alpha_initializer"},
    "ReLU": {"theta": "threshold"}, "UpSampling1D": {"length": "size"},
    "MaxNorm": {"m": "max_value"},
}  # fmt: skip
VALUES: dict[str, dict[Any, Any]] = {
    "data_format": {"tf": "channels_last", "th": "channels_first"},
    "distribution": {"normal": "truncated_normal"},
}
# Initializers of the forget gate's bias in Keras 1, as unit_forget_bias.
FORGET_BIAS = {"one": True, "zero": False}
# Options that never had an effect on the values, or repeat what the shape of the input says.
WITHOUT_EFFECT = {
    "batch_input_shape", "input_shape", "input_dtype", "input_dim", "input_length", "consume_less", "implementation",
    "fused", "trainable", "dtype",
}  # fmt: skip
WITHOUT_EFFECT_OF_CLASS = {
    # TensorFlow writes the options of ordinary convolutions, too, which these layers do not read.
    "SeparableConv1D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint"},
    "SeparableConv2D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint"},
    "DepthwiseConv2D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint", "filters"},
    "MultiHeadAttention": {"query_shape", "key_shape", "value_shape"},  # follow from the inputs
}
# Options that Keras 3 does not have, and their values that mean what Keras 3 does anyway.
NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "mode": (0,), "groups": (1,), "dropout": (0, 0.0), "time_major": (False,), "ragged": (False,), "sparse": (False,),
    "renorm": (False,), "zero_output_for_mask": (False,), "adjustment": (None,), "keepdims": (False,),
}  # fmt: skip
# Defaults that differ in Keras 3, for files without the option; by class in the file.
DEFAULTS: dict[str, dict[str, Any]] = {"GRU": {"reset_after": False}}
MERGE_LAYERS = {
    "concat": "Concatenate", "sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "dot": "Dot",
}  # fmt: skip


@dataclass(frozen=True)
class Keras2Translation:
    """Translates a layer, an initializer or any structure of them."""

    # the user's classes and functions by name; the options of these classes are kept
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
            return _number_type(each)
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
            config = _with_input_layer(
                config if isinstance(config, dict) else {"name": "sequential", "layers": config}
            )
        elif name == "Merge":
            name, config = _merge_layer(config)
        elif name in self.custom:
            given = {word: value for word, value in config.items() if word != "batch_input_shape"}
            config = {
                word: self._named(word, value) if isinstance(value, str) else value
                for word, value in given.items()
            }
        elif name == "Functional":
            config = _graph_of_keras_3(config)
        else:
            config = dict(self._options(each["class_name"], name, config or {}))
        registered = name if name in self.custom else None
        return {
            "module": "custom" if registered else _module(name), "class_name": name, "config": self(config),
            "registered_name": registered,
            **{word: value for word, value in each.items() if word in ("name", "inbound_nodes")},
        }  # fmt: skip

    def _options(self, old: str, name: str, config: Config) -> Iterator[tuple[str, Any]]:
        """Yield the options in Keras 3 of an object of class `old` in the file and `name` in Keras 3."""
        _module(name)  # raises ValueError if there is no such class
        accepted = accepted_options(name)
        for word, value in _separated_options(name, DEFAULTS.get(old, {}) | config):
            option = OPTIONS_OF_CLASS.get(name, {}).get(word) or OPTIONS.get(word, word)
            if option in accepted:
                yield option, self._value(option, value)
            elif not (
                value is None
                or option in WITHOUT_EFFECT | WITHOUT_EFFECT_OF_CLASS.get(name, set())
                or value in NEUTRAL_VALUES.get(option, ())
            ):
                raise ValueError(f"Keras 3 does not support {word}: {value!r}")

    def _value(self, option: str, value: Any) -> Any:
        if option == "dtype":
            return _number_type(value)
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


def _number_type(value: Any) -> Any:
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


def _separated_options(name: str, config: Config) -> Iterator[tuple[str, Any]]:
    """Yield the options of a layer, those that Keras 3 joins or separates in its form."""
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


def _with_input_layer(config: Config) -> Config:
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


def _merge_layer(config: Config) -> tuple[str, Config]:
    """Return the class and the options in Keras 3 of a layer Merge of Keras 1."""
    mode = config.get("mode")
    if mode not in MERGE_LAYERS or config.get("layers"):
        raise ValueError(f"Keras 3 does not support mode: {mode!r} of Merge")
    name = MERGE_LAYERS[mode]
    option = {"Concatenate": ("axis", "concat_axis"), "Dot": ("axes", "dot_axes")}.get(name)
    given = {option[0]: config[option[1]]} if option and option[1] in config else {}
    return name, {"name": config["name"], **given}


def _graph_of_keras_3(config: Config) -> Config:
    """Return the configuration of a functional model with the references of Keras 3.

    A reference is [layer, call, output]. In Keras 1 and 2, the first call of a model inside a model has number 1,
    because number 0 was its own input; in Keras 3 it has number 0.
    """
    models = {
        layer["name"]: layer["class_name"] for layer in config["layers"] if layer["class_name"] in MODELS
    }
    names = {layer["name"] for layer in config["layers"]}
    layers = [
        {**layer, "inbound_nodes": [_node(node, models, names) for node in layer.get("inbound_nodes", [])]}
        for layer in config["layers"]
    ]
    # Keras 3 itself subtracts 1 in references to functional models as outputs.
    sequential = {name for name, kind in models.items() if kind == "Sequential"}
    outputs = [_shifted(each, sequential) for each in _listed(config["output_layers"])]
    return {
        **config,
        "layers": layers,
        "input_layers": _single(_listed(config["input_layers"])),
        "output_layers": _single(outputs),
    }


def _listed(references: Any) -> list[Any]:
    """Return a list of references; one reference may stand alone."""
    return [references] if references and isinstance(references[0], str) else list(references)


def _single(references: list[Any]) -> list[Any]:
    # For Keras 3, a list of one reference is a list of one tensor.
    return references[0] if len(references) == 1 else references


def _shifted(reference: list[Any], models: Any) -> list[Any]:
    name, call, *rest = reference
    return [name, max(call - 1, 0) if name in models else call, *rest]


def _node(node: Any, models: dict[str, str], names: set[str]) -> Any:
    """Return the call of a layer from the references of its arguments, whose fourth item is the keyword arguments."""
    node = [_shifted(each, models) for each in _listed(node)]
    keywords = node[-1][3] if node and len(node[-1]) > 3 else {}
    if not any(_has_reference(value, names) for value in keywords.values()):
        return node
    arguments = [_tensor(each) for each in node]
    return {
        "args": arguments if len(arguments) == 1 else [arguments],
        "kwargs": {word: _with_tensors(value, models, names) for word, value in keywords.items()},
    }


def _is_reference(value: Any, names: set[str]) -> bool:
    return isinstance(value, list) and len(value) >= 3 and isinstance(value[0], str) and value[0] in names


def _has_reference(value: Any, names: set[str]) -> bool:
    inner = isinstance(value, list) and any(_has_reference(each, names) for each in value)
    return inner or _is_reference(value, names)


def _with_tensors(value: Any, models: dict[str, str], names: set[str]) -> Any:
    """Return an argument with tensors in place of references."""
    if _is_reference(value, names):
        return _tensor(_shifted(value, models))
    return [_with_tensors(each, models, names) for each in value] if isinstance(value, list) else value


def _tensor(reference: list[Any]) -> Config:
    # Keras 3 takes the shape from the layer.
    config = {"shape": [], "dtype": "float32", "keras_history": reference[:3]}
    return {"class_name": "__keras_tensor__", "config": config}
