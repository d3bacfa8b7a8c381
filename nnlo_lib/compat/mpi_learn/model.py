"""mpi_learn's builders of the user's network."""

from typing import Any


class ModelBuilder:
    """Base class of builders: derive from it and override `build_model`."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm

    def build_model(self) -> Any:
        """Return the network to train, a Keras model or a torch.nn.Module; every rank calls it once."""
        raise NotImplementedError(f"{type(self).__name__} must override build_model()")


class ModelFromJson(ModelBuilder):
    """Builder of a network from JSON written by Keras, in a file or a string."""

    def __init__(
        self,
        comm: Any = None,
        filename: str | None = None,
        json_str: str | None = None,
        weights: str | None = None,
        custom_objects: dict[str, Any] | None = None,
    ) -> None:
        """Set the source of the network.

        Args:
            comm: mpi4py communicator; nnlo does not use it.
            filename: path of a JSON file.
            json_str: content of a JSON file, instead of `filename`.
            weights: path of a file written by Keras's `save_weights`; None keeps the initial weights.
            custom_objects: your classes and functions by their names in the JSON.

        Raises:
            ValueError: if not exactly one of `filename` and `json_str` is given.
        """
        super().__init__(comm)
        if (filename is None) == (json_str is None):
            raise ValueError("ModelFromJson: pass exactly one of filename and json_str")
        self.filename, self.json_str, self.weights = filename, json_str, weights
        self.custom_objects = custom_objects

    def build_model(self) -> Any:
        """Return the Keras model."""
        from nnlo_lib.models.keras.keras_json import keras_model_from_json, load_keras_json

        model = (
            load_keras_json(self.filename, self.custom_objects)
            if self.filename
            else keras_model_from_json(str(self.json_str), self.custom_objects)
        )
        if self.weights:
            model.load_weights(self.weights)
        return model
