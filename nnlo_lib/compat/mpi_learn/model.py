"""Builders of the user's network."""

from typing import Any


class ModelBuilder:
    """Base class of builders: derive from it and override `build_model`."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm

    def build_model(self) -> Any:
        """Return the network to train, a Keras model or a torch Module; called once on every rank."""
        raise NotImplementedError(f"{type(self).__name__} must override build_model()")


class ModelFromJson(ModelBuilder):
    """Builds the network from JSON written by Keras, in a file or a string."""

    def __init__(
        self,
        comm: Any = None,
        filename: str | None = None,
        json_str: str | None = None,
        weights: str | None = None,
    ) -> None:
        """Set the source of the network; `weights` is a file written by Keras's `save_weights`."""
        super().__init__(comm)
        if (filename is None) == (json_str is None):
            raise ValueError("ModelFromJson needs either filename or json_str")
        self.filename, self.json_str, self.weights = filename, json_str, weights

    def build_model(self) -> Any:
        """Return the Keras model."""
        from nnlo_lib.models.keras.keras_json import keras_model_from_json, load_keras_json

        model = load_keras_json(self.filename) if self.filename else keras_model_from_json(str(self.json_str))
        if self.weights:
            model.load_weights(self.weights)
        return model
