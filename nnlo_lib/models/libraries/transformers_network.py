"""Networks of Hugging Face's transformers from their configuration, for texts and images."""

import os
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.libraries.library_names import similar_names
from nnlo_lib.models.libraries.torchvision_import import import_torchvision

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


class ScoresOnly(nn.Module):
    """A network of transformers that returns its scores, as networks of the zoo do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of word numbers (samples, tokens) or images (samples, channels, height, width)."""
        scores: Tensor = self.network(inputs if inputs.is_floating_point() else inputs.long()).logits
        return scores


def build_transformers_network(
    name: str, args: dict[str, Any], shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Return a network of transformers with random weights.

    Args:
        name: type of the network, such as gpt2, bert or vit.
        args: `task`, and keys of the network's configuration.
        shape: (tokens,) of word numbers, or (channels, height, width).
        classes: number of outputs of a sample or a token.

    Raises:
        UserError: if transformers has no such network, task or key.
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
    settings = _settings_of_data(task, shape, classes)
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


def _settings_of_data(task: str, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Return the keys of the configuration that follow from the data.

    Args:
        task: a key of TASKS.
        shape: shape of a sample.
        classes: number of outputs of a sample or a token.
    """
    if len(shape) == 3:
        return {"num_labels": classes, "num_channels": shape[0], "image_size": shape[1]}
    return {"vocab_size": classes} if task in LANGUAGE_TASKS else {"num_labels": classes}
