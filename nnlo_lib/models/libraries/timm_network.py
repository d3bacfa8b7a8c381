"""Networks of timm, for images."""

from typing import Any

from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.libraries.library_names import similar_names
from nnlo_lib.models.libraries.torchvision_import import import_torchvision

# Their values come from the data, or from a download.
FIXED = ("pretrained", "num_classes", "in_chans", "checkpoint_path", "pretrained_cfg")
REMEDY = "pip install torchvision==0.28.0 --index-url https://download.pytorch.org/whl/cpu fits torch 2.13.0"


def build_timm_network(name: str, args: dict[str, Any], shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of timm with random weights.

    Args:
        name: name in timm, such as resnet50.
        args: further arguments of timm.create_model.
        shape: shape of an image, (channels, height, width).
        classes: number of outputs.

    Raises:
        UserError: if timm has no such network, or cannot be imported.
    """
    timm = import_timm()
    if fixed := [key for key in FIXED if key in args]:
        raise UserError(
            f"model.args: {', '.join(fixed)} cannot be set; they follow from the data, and weights from the seed"
        )
    if len(shape) != 3:
        raise UserError(f"timm:{name} requires images (channels, height, width), but the samples are {shape}")
    if not timm.is_model(name):
        raise UserError(f"timm has no network '{name}'; {similar_names(name, timm.list_models())}")
    network: nn.Module = timm.create_model(
        name, pretrained=False, num_classes=classes, in_chans=shape[0], **_size(timm, name, shape), **args
    )
    return network


def _size(timm: Any, name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the argument `img_size` of the networks that are built for one size, such as vision transformers.

    Args:
        timm: the module.
        name: name of the network.
        shape: shape of an image.
    """
    known = timm.models.get_pretrained_cfg(name)
    return {"img_size": shape[1:]} if known is not None and known.fixed_input_size else {}


def import_timm() -> Any:
    """Return the module timm. Raises UserError with the remedy if torchvision, which timm imports, cannot be used."""
    try:
        import_torchvision()
        import timm
    except (ImportError, RuntimeError) as error:
        raise UserError(f"timm cannot be imported: {error}; {REMEDY}") from error
    return timm
