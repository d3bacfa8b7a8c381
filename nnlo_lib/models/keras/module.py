"""A Keras model as a torch Module, trained like any other model; Keras's JSON files, regularizers and constraints."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.keras.keras_2 import HARD_SIGMOID, Config, Keras2Translation, hard_sigmoid_of_keras_2
from nnlo_lib.models.keras.layer_signatures import refusal_text, user_code_error, with_all_frames

CustomObjects = Mapping[str, Any]  # classes and functions by their names in the file
OmittedActivation = Literal["softmax", "sigmoid"] | None
Shapes = Sequence[tuple[int, ...]]  # sample shape of each input
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
    # Keras 2.13 and later write modules, too; Keras 3 writes no version.
    if "module" in config and str(config.get("keras_version", "3")).startswith("3"):
        config = _with_custom_names(config, custom)
    else:
        try:
            config = Keras2Translation(custom)(config)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{NO_NETWORK} ({type(error).__name__}: {error})") from error
        custom.setdefault(HARD_SIGMOID, hard_sigmoid_of_keras_2)
    with keras.saving.custom_object_scope(custom):
        return _deserialize(config)


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


class KerasNetwork(nn.Module):
    """Wrapper of a Keras model (torch backend) that takes images channels first.

    Invariant: the trainable variables of the model are the parameters of this module, and the other variables
    are its buffers, under the names of Keras. In training, random numbers derive from torch's generator, as in
    torch's own layers.
    """

    def __init__(self, model: Any, shapes: Shapes, undone: OmittedActivation = None) -> None:
        """Wrap `model` for samples of `shapes`, without its final activation `undone`, which the loss applies.

        Raises ValueError if the model takes samples of another shape, ends in another activation, or has a constraint.
        """
        super().__init__()
        import keras

        if keras.backend.backend() != "torch":
            raise ValueError(
                f"Keras uses the backend {keras.backend.backend()}; set the environment variable KERAS_BACKEND=torch"
            )
        if not model.built:
            model.build([_batch(shape) for shape in shapes] if len(shapes) > 1 else _batch(shapes[0]))
        declared = [tuple(tensor.shape[1:]) for tensor in getattr(model, "inputs", None) or []]
        wanted = declared or [_batch(shape)[1:] for shape in shapes]
        self._input_conversions = [
            _input_conversion(*each) for each in zip_longest(shapes, wanted, fillvalue=())
        ]
        # A tuple, because the parameters are registered below under Keras's names. The second model is the
        # complete one, to which weight files of Keras refer.
        self._model = (_without_final_activation(model, undone), model)
        self._layers = list(self._model[0]._flatten_layers())
        _refuse_constraints(self._layers)
        self._adds_to_loss = _may_add_losses(self._layers)
        self._generators = [each for layer in self._layers for each in getattr(layer, "_seed_generators", [])]
        # torch does not allow dots in the names of parameters and buffers.
        self._variables = {
            str(variable.path.removeprefix(f"{model.name}/").replace(".", "_")): variable
            for variable in model.weights
        }
        for name, variable in self._variables.items():
            if variable.trainable:
                self.register_parameter(name, variable._value)
            else:
                self.register_buffer(name, variable._value.detach())
        self._link()

    def forward(self, *inputs: Tensor) -> Any:
        """Return the model's output: a tensor, or a tuple with one tensor per output."""
        import keras

        self._link_variables()
        with keras.device(str(inputs[0].device)):
            # From torch's generator; Keras has a generator for each layer.
            for generator in self._generators if self.training else ():
                generator.state._value = torch.randint(2**31, (2,), device=inputs[0].device)
            given = [
                _converted(tensor, conversion)
                for tensor, conversion in zip(inputs, self._input_conversions, strict=True)
            ]
            outputs = self._model[0](given if len(given) > 1 else given[0], training=self.training)
        return tuple(outputs) if isinstance(outputs, list) else outputs

    def regularization_loss(self) -> Tensor | None:
        """Return the sum of the penalties of all layers, a scalar; None if no layer has one.

        Penalties of activities are those of the last forward pass, in float32, whatever the type of the weights is.
        """
        if not self._adds_to_loss:
            return None
        self._link_variables()
        losses, dtype = self._model[0].losses, next(self.parameters()).dtype
        return torch.stack([each.to(dtype) for each in losses]).sum() if losses else None

    def load_keras_weights(self, path: str) -> None:
        """Load weights written by Keras's `save_weights`. Raises ValueError if the layers differ."""
        self._link_variables()
        self._model[1].load_weights(path)

    # torch converts and moves the tensors of a module (`to`, `double`, `cuda`) by this method.
    def _apply(self, *arguments: Any, **options: Any) -> "KerasNetwork":
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self._link()
        return self

    def __deepcopy__(self, _: object) -> "KerasNetwork":
        raise UserError(
            "parallel.simulation.compute: batched does not support Keras models; set parallel.simulation.compute: exact"
        )

    def _link_variables(self) -> None:
        """Point Keras's variables to this module's tensors, which torch's functional_call replaces for a call."""
        for tensors in (self._parameters, self._buffers):
            for name, value in tensors.items():
                self._variables[name]._value = value

    def _link(self) -> None:
        """Point Keras's variables to this module's tensors, which torch may have moved or converted."""
        self._link_variables()
        for name, value in [*self.named_parameters(), *self.named_buffers()]:
            self._variables[name]._dtype = str(value.dtype).removeprefix("torch.")
        dtype = next(iter(self.parameters())).dtype
        for layer in self._layers if dtype == torch.float64 else ():
            # Keras casts the inputs of a layer to the type of its policy.
            layer.dtype_policy = "float64"


def _batch(shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """Return the shape of a batch of samples in Keras, channels last."""
    return (None, *shape[1:], shape[0]) if len(shape) == 3 else (None, *shape)


def _input_conversion(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> str:
    """Return the conversion from samples of `shape` to `wanted`. Raises ValueError if they do not match."""
    last = (*shape[1:], *shape[:1]) if len(shape) == 3 else shape
    if _fits(shape, wanted):
        return "unchanged"
    if _fits(last, wanted):
        return "channels last"
    flat = len(wanted) == 1 and wanted[0] == prod(shape)
    if flat or (_squeezed(last) == _squeezed(wanted) and shape):
        return f"reshaped {','.join(map(str, wanted))}"
    raise ValueError(
        f"the model takes samples of shape {wanted} (channels last), but the samples are {shape}"
    )


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(b in (None, a) for a, b in zip(shape, wanted, strict=True))


def _squeezed(shape: tuple[int | None, ...]) -> list[int | None]:
    return [side for side in shape if side != 1]


def _converted(tensor: Tensor, conversion: str) -> Tensor:
    if conversion == "unchanged":
        return tensor
    channels_last = tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
    sizes = conversion.removeprefix("reshaped ")
    reshape = conversion != "channels last"
    return channels_last.reshape(-1, *map(int, sizes.split(","))) if reshape else channels_last


def _without_final_activation(model: Any, undone: OmittedActivation) -> Any:
    """Return the model without the final activation `undone`. Raises ValueError if it ends in softmax or sigmoid instead."""
    import keras

    if undone is None:
        return model
    for layer in list(_last(model)):
        is_softmax = isinstance(layer, keras.layers.Softmax)
        name = "softmax" if is_softmax else getattr(getattr(layer, "activation", None), "__name__", "")
        if name not in ("softmax", "sigmoid"):
            continue
        if name != undone:
            raise ValueError(
                f"the model ends in {name}, but the loss applies {undone}; set problem.outputs: probabilities"
            )
        if _is_active(getattr(layer, "activity_regularizer", None)):
            raise ValueError(
                f"layer {layer.name} ({type(layer).__name__}): activity_regularizer applies to the probabilities, but the "
                "loss takes scores; set problem.outputs: probabilities"
            )
        if is_softmax:
            return keras.Model(model.inputs, layer.input)
        layer.activation = keras.activations.linear
    return model


def _last(model: Any) -> Iterator[Any]:
    """Yield the layers that produce the outputs; no layer if the model's graph of layers is unknown."""
    import keras

    for tensor in getattr(model, "outputs", None) or []:
        layer = tensor._keras_history.operation
        yield from _last(layer) if isinstance(layer, keras.Model) else [layer]


def _may_add_losses(layers: Sequence[Any]) -> bool:
    """Return True if a layer has a regularizer other than zero, or is not a layer of Keras and may add losses."""
    return any(
        type(layer).__module__.partition(".")[0] != "keras"
        or type(layer).__name__ == "ActivityRegularization"
        or any(_is_active(value) for name, value in vars(layer).items() if name.endswith("_regularizer"))
        for layer in layers
    )


def _refuse_constraints(layers: Sequence[Any]) -> None:
    """Raise ValueError if a layer constrains its weights, which no optimizer here does."""
    for layer in layers:
        for name, value in vars(layer).items():
            if value is not None and name.endswith("_constraint"):
                raise ValueError(
                    f"layer {layer.name} ({type(layer).__name__}): {name.lstrip('_')} {type(value).__name__} is not "
                    "supported; remove it from the file"
                )


def _is_active(regularizer: Any) -> bool:
    """Return True if a regularizer can be other than zero; Keras writes l1 = l2 = 0, too."""
    import keras

    if isinstance(regularizer, keras.regularizers.L1 | keras.regularizers.L2 | keras.regularizers.L1L2):
        return bool(getattr(regularizer, "l1", 0) or getattr(regularizer, "l2", 0))
    return regularizer is not None
