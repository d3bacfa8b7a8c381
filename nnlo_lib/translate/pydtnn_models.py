"""PyDTNN's models by their names here."""

import re
from typing import Any

from nnlo_lib.config import nearest
from nnlo_lib.errors import UserError
from nnlo_lib.translate.draft import Draft
from nnlo_lib.translate.options import Options

NAMES = {
    "densenet": "densenet40",
    "inceptionv3": "inception_v3",
    "mobilenetv1": "mobilenet_v1",
    "resnet50v15": "resnet50",
    **{f"vgg{depth}bn": f"vgg{depth}_bn" for depth in (11, 13, 16, 19)},
}
ONLY_THERE = {"vgg1", "vgg2", "vgg3", "vgg3do", "vgg3do2", "vgg3dobn"}
OWN = {"simplemlp", "simplecnn", "alexnet", "googlenet", "vgg11", "vgg13", "vgg16", "vgg19"}
OWN |= {f"resnet{depth}" for depth in (18, 20, 32, 34, 44, 50, 56, 101, 110, 152, 1202)}
OWN |= {f"densenet{depth}" for depth in (121, 161, 169, 201)}
TWO_TOWERS_IN_ONE = {"groups": 1, "normalize": False}


def model(draft: Draft, options: Options, old: bool) -> None:
    """Set the model, by PyDTNN's name with or without the data set it is for; old: the launcher of 2020."""
    written = options["model"]
    short = re.sub(r"_(cifar10|imagenet|mnist)$", "", written)
    if short not in OWN | ONLY_THERE | set(NAMES):
        raise UserError(f"PyDTNN has no model '{written}'; {nearest(short, OWN | ONLY_THERE | set(NAMES))}")
    name, args = NAMES.get(short, short), dict[str, Any]()
    if name == "alexnet" and options["dataset"] == "imagenet":
        name, args = "alexnet_2012", TWO_TOWERS_IN_ONE
    if name == "simplecnn" and old:
        args = {"dropout": 0.0}
        draft.remarks.append(
            "simplecnn: in the launcher of this command it had no dropout, and no padding; here it pads"
        )
    why = f"the zoo has no {name}; until then the default model is trained"
    draft.set("model", {"name": name, "args": args}, options.said("model"), why)
