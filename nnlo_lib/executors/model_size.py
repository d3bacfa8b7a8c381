"""Number of parameters of a model before training."""

import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.train.output_size import model_output_size
from nnlo_lib.train.replica.model_init import build_random_model
from nnlo_lib.train.replica.preprocess import Preprocessor


def count_parameters(run: Run, manifest: DataManifest, seed: int) -> int:
    """Return the number of trainable parameters of a run's model.

    Args:
        run: the run.
        manifest: manifest of the run's store, which has the shapes of the samples.
        seed: seed of the initial weights.

    Raises:
        UserError: if the model cannot be built.
    """
    try:
        # Tensors on `meta` have no storage, so a model that is too large costs no memory.
        model = _build_model("meta", run, manifest, seed)
    except UserError:
        # The model may read tensor values, which do not exist on "meta".
        model = _build_model("cpu", run, manifest, seed)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _build_model(device: str, run: Run, manifest: DataManifest, seed: int) -> nn.Module:
    shape = Preprocessor(manifest, run.data, "cpu").shape
    with torch.device(device):
        return build_random_model(run, shape, model_output_size(run, manifest), seed)
