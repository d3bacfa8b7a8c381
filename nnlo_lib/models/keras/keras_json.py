"""Networks that Keras saved as JSON; files of Keras 1 and 2 are translated to Keras 3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.core.json_text import load_json

Config = dict[str, Any]

CLASSES = {
    "Model": "Functional", "Convolution1D": "Conv1D", "Convolution2D": "Conv2D", "Convolution3D": "Conv3D",
    "CuDNNGRU": "GRU", "CuDNNLSTM": "LSTM",
}  # fmt: skip
KERAS_1_OPTIONS = {  # options of Keras 1 and their names in Keras 3
    "nb_filter": "filters", "output_dim": "units", "p": "rate", "border_mode": "padding", "subsample": "strides",
    "subsample_length": "strides", "filter_length": "kernel_size", "pool_length": "pool_size", "stride": "strides",
    "bias": "use_bias", "init": "kernel_initializer", "inner_init": "recurrent_initializer",
    "inner_activation": "recurrent_activation", "dim_ordering": "data_format", "batch_input_shape": "batch_shape",
    "W_regularizer": "kernel_regularizer", "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint", "b_constraint": "bias_constraint",
}  # fmt: skip
VALUES = {
    "data_format": {"tf": "channels_last", "th": "channels_first"},
    "distribution": {"normal": "truncated_normal"},
}
REMOVED_OPTIONS = {  # fixed behavior of Keras 3, or options that never had an effect
    "time_major", "implementation", "input_dtype", "input_dim", "input_length", "consume_less", "gamma_init", "beta_init",
}  # fmt: skip


def load_keras_json(path: str) -> Any:
    """Return the Keras model in a JSON file; see `keras_model_from_json`."""
    return keras_model_from_json(Path(path).read_text())


def keras_model_from_json(text: str) -> Any:
    """Return the Keras model saved by `model.to_json()`, with newly drawn initial weights.

    Raises ValueError or TypeError if Keras does not know a class or an option.
    """
    import keras

    config = load_json(text)
    if not isinstance(config, dict) or "class_name" not in config:
        raise ValueError("the file is not a network saved with model.to_json() of Keras")
    # Only Keras 3 writes the module of a class. In Keras's safe mode, the default, a Lambda layer, which
    # contains pickled code, is refused.
    return keras.saving.deserialize_keras_object(config if "module" in config else _to_keras_3(config))


def _to_keras_3(each: Any) -> Any:
    """Translate a layer, an initializer or any structure of them from Keras 1 or 2 to Keras 3."""
    if isinstance(each, list):
        return [_to_keras_3(item) for item in each]
    if not isinstance(each, dict):
        return each
    if "class_name" not in each or "config" not in each:
        return {word: _to_keras_3(value) for word, value in each.items()}
    name = str(CLASSES.get(each["class_name"], each["class_name"]))
    config = each["config"]
    if name == "Sequential":
        config = _sequential(config if isinstance(config, dict) else {"name": "sequential", "layers": config})
    elif name != "Functional":
        config = dict(_renamed(config))
    rest = {word: value for word, value in each.items() if word in ("name", "inbound_nodes")}
    return {
        "module": _module(name),
        "class_name": name,
        "config": _to_keras_3(config),
        "registered_name": None,
        **rest,
    }


def _sequential(config: Config) -> Config:
    """Add an input layer to a Sequential model if its first layer declares the input shape (Keras 1, 2)."""
    first = config["layers"][0]["config"] if config["layers"] else {}
    shape = first.get("batch_input_shape") if isinstance(first, dict) else None
    if shape is None or config["layers"][0]["class_name"] == "InputLayer":
        return config
    given = {"class_name": "InputLayer", "config": {"batch_shape": shape, "name": "input"}}
    bare = {word: value for word, value in first.items() if word != "batch_input_shape"}
    return {**config, "layers": [given, {**config["layers"][0], "config": bare}, *config["layers"][1:]]}


def _renamed(config: Config) -> Iterator[tuple[str, Any]]:
    # Keras 1 had separate options for the two sides of a kernel.
    if "nb_row" in config:
        yield "kernel_size", [config["nb_row"], config["nb_col"]]
    for word, value in config.items():
        word = KERAS_1_OPTIONS.get(word, word)
        if word not in REMOVED_OPTIONS and word not in ("nb_row", "nb_col"):
            known = VALUES.get(word, {})
            yield word, known.get(value, value) if isinstance(value, str) else value


def _module(name: str) -> str:
    """Return the module of Keras 3 that contains a class."""
    import keras

    if name == "Functional":
        return "keras.src.models.functional"
    places = ("layers", "initializers", "regularizers", "constraints")
    found = [place for place in places if hasattr(getattr(keras, place), name)]
    return f"keras.{found[0]}" if found else "keras"
