"""How large a model is, before it is trained."""

import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.errors import UserError
from nnlo_lib.train.outputs import outputs_of
from nnlo_lib.train.replica.initial_model import blank
from nnlo_lib.train.replica.tensors import Tensors


def count_parameters(run: Run, manifest: Manifest, seed: int) -> int:
    """Return the number of trained parameters of a run's model. Raises UserError if it cannot be built."""
    try:
        model = _built("meta", run, manifest, seed)
    except UserError:  # perhaps only for it reads a number of a tensor, which none has there
        model = _built("cpu", run, manifest, seed)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _built(device: str, run: Run, manifest: Manifest, seed: int) -> nn.Module:
    shape = Tensors(manifest, run.data, "cpu").shape
    with torch.device(device):
        return blank(run, shape, outputs_of(run, manifest), seed)
