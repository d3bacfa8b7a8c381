"""PyDTNN's models and their names in nnlo."""

import re
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
UNSUPPORTED_MODELS = {"vgg1", "vgg2", "vgg3", "vgg3do", "vgg3do2", "vgg3dobn"}
SAME_NAME_MODELS = {"simplemlp", "simplecnn", "alexnet", "googlenet", "vgg11", "vgg13", "vgg16", "vgg19"}
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
    if short not in SAME_NAME_MODELS | UNSUPPORTED_MODELS | set(NAMES):
        raise UserError(
            f"--model: PyDTNN has no model '{written}'; "
            f"{suggest_name(short, SAME_NAME_MODELS | UNSUPPORTED_MODELS | set(NAMES))}"
        )
    name, args = NAMES.get(short, short), dict[str, Any]()
    if name == "alexnet" and options["dataset"] == "imagenet":
        # nnlo's alexnet has fewer filters for large images; PyDTNN's is the first AlexNet.
        name, args = "alexnet_2012", TWO_TOWERS_IN_ONE
    if name == "simplecnn" and old:
        args = {"dropout": 0.0}
        draft.remarks.append(
            "simplecnn: PyDTNN's model of 2020 has no dropout and no padding; nnlo's model uses padding"
        )
    reason = f"nnlo has no model {name}; the default model is trained instead"
    draft.set("model", {"name": name, "args": args}, options.as_written("model"), reason)
