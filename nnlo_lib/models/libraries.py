"""Networks of timm (images) and of Hugging Face's transformers (texts, images), with random weights."""

import os
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.zoo_registry import similar_names

# Their values come from the data, or from a download.
FIXED = ("pretrained", "num_classes", "in_chans", "checkpoint_path", "pretrained_cfg")
REMEDY = "pip install torchvision==0.28.0 --index-url https://download.pytorch.org/whl/cpu fits torch 2.13.0"
# task -> class of transformers
TASKS = {
    "causal_lm": "AutoModelForCausalLM",
    "masked_lm": "AutoModelForMaskedLM",
    "token_classification": "AutoModelForTokenClassification",
    "sequence_classification": "AutoModelForSequenceClassification",
    "image_classification": "AutoModelForImageClassification",
}
LANGUAGE_TASKS = ("causal_lm", "masked_lm")  # the outputs are the words of the vocabulary
# Nothing is downloaded: networks are built from their configuration.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def build_timm_network(name: str, args: dict[str, Any], shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network `name` of timm with random weights; `args` are further arguments of timm.create_model."""
    timm = import_timm()
    if fixed := [key for key in FIXED if key in args]:
        raise UserError(
            f"model.args: {', '.join(fixed)} cannot be set; they follow from the data, and weights from the seed"
        )
    if len(shape) != 3:
        raise UserError(f"timm:{name} requires images (channels, height, width), but the samples are {shape}")
    if not timm.is_model(name):
        raise UserError(f"timm has no network '{name}'; {similar_names(name, timm.list_models())}")
    known = timm.models.get_pretrained_cfg(name)
    # Networks such as vision transformers are built for one size.
    size = {"img_size": shape[1:]} if known is not None and known.fixed_input_size else {}
    network: nn.Module = timm.create_model(
        name, pretrained=False, num_classes=classes, in_chans=shape[0], **size, **args
    )
    return network


def import_timm() -> Any:
    """Return the module timm. Raises UserError with the remedy if torchvision, which timm imports, cannot be used."""
    try:
        import_torchvision()
        import timm
    except (ImportError, RuntimeError) as error:
        raise UserError(f"timm cannot be imported: {error}; {REMEDY}") from error
    return timm


def build_transformers_network(
    name: str, args: dict[str, Any], shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Return a network of transformers, such as gpt2, bert or vit, with random weights.

    `args` are `task` and keys of the network's configuration; `shape` is (tokens,) of word numbers, or of images.
    """
    os.environ |= OFFLINE
    if find_spec("torchvision") is not None:
        # transformers imports it together with the networks, and fails if this fails.
        import_torchvision()
    import transformers

    args = dict(args)
    task = args.pop("task", "image_classification" if len(shape) == 3 else "sequence_classification")
    if task not in TASKS:
        raise UserError(f"model.args.task: hf has no task '{task}'; {similar_names(str(task), TASKS)}")
    known = transformers.CONFIG_MAPPING
    if name not in known:
        raise UserError(f"transformers has no network '{name}'; {similar_names(name, list(known))}")
    settings = {"vocab_size": classes} if task in LANGUAGE_TASKS else {"num_labels": classes}
    if len(shape) == 3:
        settings = {"num_labels": classes, "num_channels": shape[0], "image_size": shape[1]}
    defaults = known[name]()
    for key in args:
        if key in settings or not hasattr(defaults, key):
            reason = "follows from the data" if key in settings else f"is no key of {type(defaults).__name__}"
            raise UserError(f"model.args.{key}: {reason}; remove it")
    config = transformers.AutoConfig.for_model(name, **settings, **args)
    try:
        return ScoresOnly(getattr(transformers, TASKS[task]).from_config(config))
    except ValueError as error:
        if "Unrecognized configuration" not in str(error):
            raise
        raise UserError(
            f"model.args.task: hf:{name} has no network for the task {task}; use another of {', '.join(TASKS)}"
        ) from error


class ScoresOnly(nn.Module):
    """A network of transformers that returns its scores, as networks of the zoo do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of word numbers (samples, tokens) or images (samples, channels, height, width)."""
        scores: Tensor = self.network(inputs if inputs.is_floating_point() else inputs.long()).logits
        return scores


def import_torchvision() -> None:
    """Import torchvision also if its compiled operators are of another build of torch, as PyPI's beside torch+cpu.

    The import then fails where the operators get their shapes. Networks for classification do not call them.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for half in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[half]
        sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")
        import torchvision  # noqa: F401
