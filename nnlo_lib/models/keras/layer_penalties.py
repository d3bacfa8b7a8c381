"""Terms that the layers of a Keras model add to the loss, and constraints, which are refused."""

from collections.abc import Sequence
from typing import Any


def adds_to_loss(layers: Sequence[Any]) -> bool:
    """Return True if a layer has a regularizer other than zero, or is not a layer of Keras and may add losses."""
    return any(
        not _is_of_keras(layer)
        or type(layer).__name__ == "ActivityRegularization"
        or any(_is_active(value) for name, value in vars(layer).items() if name.endswith("_regularizer"))
        for layer in layers
    )


def refuse_constraints(layers: Sequence[Any]) -> None:
    """Raise ValueError if a layer constrains its weights, which no optimizer here does."""
    for layer in layers:
        for name, value in vars(layer).items():
            if value is not None and name.endswith("_constraint"):
                raise ValueError(
                    f"layer {layer.name} ({type(layer).__name__}): {name.lstrip('_')} {type(value).__name__} is not "
                    "supported; remove it from the file"
                )


def refuse_activity_regularizer(layer: Any) -> None:
    """Raise ValueError if the layer whose activation the loss applies has a penalty on its output."""
    if _is_active(getattr(layer, "activity_regularizer", None)):
        raise ValueError(
            f"layer {layer.name} ({type(layer).__name__}): activity_regularizer applies to the probabilities, but the "
            "loss takes scores; set problem.outputs: probabilities"
        )


def _is_of_keras(layer: Any) -> bool:
    return type(layer).__module__.partition(".")[0] == "keras"


def _is_active(regularizer: Any) -> bool:
    """Return True if a regularizer can be other than zero; Keras writes l1 = l2 = 0, too."""
    import keras

    if isinstance(regularizer, keras.regularizers.L1 | keras.regularizers.L2 | keras.regularizers.L1L2):
        return bool(getattr(regularizer, "l1", 0) or getattr(regularizer, "l2", 0))
    return regularizer is not None
