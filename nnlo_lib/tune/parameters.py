"""How large a model is, before it is trained."""

from pathlib import Path

import torch

from nnlo_lib.config import Run
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.jobs import manifest_of
from nnlo_lib.train.outputs import outputs_of
from nnlo_lib.train.replica.initial_model import blank
from nnlo_lib.train.replica.tensors import Tensors


def count_parameters(run: Run, seed: int) -> int:
    """Return the number of trained parameters of a run's model. Raises UserError if it cannot be built."""
    manifest = Manifest.load(Path(manifest_of(run)))
    shape = Tensors(manifest, run.data, "cpu").shape
    with torch.device("meta"):
        model = blank(run, shape, outputs_of(run, manifest), seed)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
