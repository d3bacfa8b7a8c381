"""How the user's network is made."""

from typing import Any


class ModelBuilder:
    """Derive from it and override `build_model`."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm

    def build_model(self) -> Any:
        """Return the network to train, a Keras model or a torch Module; called once on every rank."""
        raise NotImplementedError(f"{type(self).__name__} must override build_model()")


class ModelFromJson(ModelBuilder):
    """Build the network in a JSON file that Keras wrote, or in a string."""

    def __init__(
        self,
        comm: Any = None,
        filename: str | None = None,
        json_str: str | None = None,
        weights: str | None = None,
    ) -> None:
        """`weights`: a file that Keras's `save_weights` wrote."""
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
