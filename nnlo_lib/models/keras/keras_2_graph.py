"""The graph of a functional model of Keras 1 and 2: which outputs each layer takes."""

from typing import Any

Config = dict[str, Any]
MODELS = ("Model", "Functional", "Sequential")


def graph_of_keras_3(config: Config) -> Config:
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
    """Return the call of a layer.

    Args:
        node: references of the arguments; the fourth item of a reference is the keyword arguments of the call.
        models: class of each model inside the model, by name.
        names: names of all layers.
    """
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
    """Return an argument with tensors in place of references.

    Args:
        value: the argument.
        models: class of each model inside the model, by name.
        names: names of all layers.
    """
    if _is_reference(value, names):
        return _tensor(_shifted(value, models))
    return [_with_tensors(each, models, names) for each in value] if isinstance(value, list) else value


def _tensor(reference: list[Any]) -> Config:
    # Keras 3 takes the shape from the layer.
    config = {"shape": [], "dtype": "float32", "keras_history": reference[:3]}
    return {"class_name": "__keras_tensor__", "config": config}
