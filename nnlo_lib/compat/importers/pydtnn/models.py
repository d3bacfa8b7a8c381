"""PyDTNN's models and their names in nnlo."""

import re
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

NAMES = {
    "densenet": "densenet40",
    "inceptionv3": "inception_v3",
    "mobilenetv1": "mobilenet_v1",
    "resnet50v15": "resnet50",
    **{f"vgg{depth}bn": f"vgg{depth}_bn" for depth in (11, 13, 16, 19)},
}
SAME_NAME_MODELS = {"simplemlp", "simplecnn", "alexnet", "googlenet", "vgg11", "vgg13", "vgg16", "vgg19"}
SAME_NAME_MODELS |= {"vgg1", "vgg2", "vgg3", "vgg3do", "vgg3do2", "vgg3dobn"}
SAME_NAME_MODELS |= {f"resnet{depth}" for depth in (18, 20, 32, 34, 44, 50, 56, 101, 110, 152, 1202)}
SAME_NAME_MODELS |= {f"densenet{depth}" for depth in (121, 161, 169, 201)}
# PyDTNN's AlexNet has neither grouped convolutions nor local response normalization.
TWO_TOWERS_IN_ONE = {"groups": 1, "normalize": False}


def set_model(draft: ExperimentDraft, options: ParsedOptions, old: bool) -> None:
    """Set the model from PyDTNN's name, with or without the suffix of its data set.

    Args:
        draft: receives the settings.
        options: options of the command.
        old: True for the launcher of 2020.

    Raises:
        UserError: if PyDTNN has no such model.
    """
    written = options["model"]
    short = re.sub(r"_(cifar10|imagenet|mnist)$", "", written)
    if short not in SAME_NAME_MODELS | set(NAMES):
        raise UserError(
            f"--model: PyDTNN has no model '{written}'; {suggest_name(short, SAME_NAME_MODELS | set(NAMES))}"
        )
    name, args = NAMES.get(short, short), dict[str, Any]()
    if name == "alexnet" and options["dataset"] == "imagenet":
        # nnlo's alexnet has fewer filters for large images; PyDTNN's is the first AlexNet.
        name, args = "alexnet_2012", TWO_TOWERS_IN_ONE
    if name == "simplecnn" and old:
        # The model of 2020 has neither dropout nor padding.
        args = {"dropout": 0.0, "padding": 0}
    reason = f"nnlo has no model {name}; the default model is trained instead"
    block = {"name": name, "args": args} | _weights(draft, options)
    words = ["weights_and_bias_filename"] if "weights" in block else []
    draft.set("model", block, options.as_written("model", *words), reason)


def _weights(draft: ExperimentDraft, options: ParsedOptions) -> dict[str, Any]:
    """Return `model.weights` if the command names a file of weights that exists."""
    path = options["weights_and_bias_filename"]
    if path is None:
        return {}
    # An experiment refuses files that do not exist.
    if Path(path).suffix == ".npz" and Path(path).is_file():
        return {"weights": path}
    reason = f"{path} is no .npz file that exists; set model.weights to the path of the file"
    draft.add_untranslatable(options.as_written("weights_and_bias_filename"), reason)
    return {}
