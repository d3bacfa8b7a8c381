"""Networks that Keras saved as JSON; files of Keras 1 and 2 are translated to Keras 3."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnlo_lib.core.json_text import load_json
from nnlo_lib.models.keras.keras_2_translation import (
    HARD_SIGMOID,
    Config,
    Keras2Translation,
    hard_sigmoid_of_keras_2,
)
from nnlo_lib.models.keras.refused_layer import refusal_text, user_code_error, with_all_frames

CustomObjects = Mapping[str, Any]  # classes and functions by their names in the file
NO_NETWORK = "the file is not a network saved with model.to_json() of Keras"


def load_keras_json(path: str, custom_objects: CustomObjects | None = None) -> Any:
    """Return the Keras model in a JSON file; see `keras_model_from_json`."""
    return keras_model_from_json(Path(path).read_text(), custom_objects)


def keras_model_from_json(text: str, custom_objects: CustomObjects | None = None) -> Any:
    """Return the Keras model saved by `model.to_json()`, with newly drawn initial weights.

    Raises ValueError if Keras lacks a class or an option; the error begins with the layer.
    """
    import keras

    config = load_json(text)
    if not isinstance(config, dict) or not {"class_name", "config"} <= config.keys():
        raise ValueError(NO_NETWORK)
    custom = dict(custom_objects or {})
    if _is_of_keras_3(config):
        config = _with_custom_names(config, custom)
    else:
        config = _translated(config, custom)
        custom.setdefault(HARD_SIGMOID, hard_sigmoid_of_keras_2)
    with keras.saving.custom_object_scope(custom):
        return _deserialize(config)


def _translated(config: Config, custom: CustomObjects) -> Config:
    try:
        translated: Config = Keras2Translation(custom)(config)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{NO_NETWORK} ({type(error).__name__}: {error})") from error
    return translated


def _is_of_keras_3(config: Config) -> bool:
    # Keras 2.13 and later write modules, too; Keras 3 writes no version.
    return "module" in config and str(config.get("keras_version", "3")).startswith("3")


def _with_custom_names(each: Any, custom: CustomObjects) -> Any:
    """Return a configuration of Keras 3 in which custom objects are found by their class names."""
    if isinstance(each, list):
        return [_with_custom_names(item, custom) for item in each]
    if not isinstance(each, dict):
        return each
    named = {"registered_name": each["class_name"]} if each.get("class_name") in custom else {}
    return {word: _with_custom_names(value, custom) for word, value in each.items()} | named


def _deserialize(config: Config) -> Any:
    """Return the model of a configuration of Keras 3. Raises ValueError that begins with the layer."""
    import keras

    # In Keras's safe mode, the default, a Lambda layer, which contains pickled code, is refused.
    try:
        with with_all_frames():
            # A copy, because Keras removes parts of it.
            return keras.saving.deserialize_keras_object(copy.deepcopy(config))
    except Exception as error:
        if cause := user_code_error(error):
            raise cause from None
        raise ValueError(refusal_text(config, error)) from error
