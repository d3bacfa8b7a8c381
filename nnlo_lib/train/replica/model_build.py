"""Network of a run: number of outputs and parameters, initial weights, and compilation by torch.compile."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import cast

import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.config.problem import (
    ClassificationConfig,
    DenseClassificationConfig,
    GanConfig,
    RegressionConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import CACHE_VARIABLE, UntrustedPathError, guard_torch_compiler, private_folder
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.models.factory import Shape, build_model, input_shapes
from nnlo_lib.models.saved_networks import load_weights
from nnlo_lib.train.replica.preprocess import Preprocessor

# Each combination of a mini-batch shape and a mode is compiled separately; torch's default limit is 8.
MAX_COMPILED_SHAPES = 64
# Parameters up to which a pass on the CPU is faster than torch's first pass on `meta`.
SMALL_MODEL = 5_000_000
# The activation that each loss applies to scores.
LOSS_ACTIVATIONS = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}


def build_initial_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model with random weights, then load `model.weights`."""
    return load_initial_weights(run, build_random_model(run, shape, classes, seed), shape)


def build_random_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model with random weights, without loading `model.weights`."""
    model, activation = run.model, activation_in_loss(run)
    return build_model(
        model.name, model.args, shape, classes, seed, activation, model.trust, model.custom_objects
    )


def is_small(module: nn.Module) -> bool:
    """Return True if a pass on the CPU is faster than torch's first pass on `meta`, which imports for a second."""
    return sum(each.numel() for each in module.parameters()) <= SMALL_MODEL


def load_initial_weights(run: Run, module: nn.Module, shape: Shape) -> nn.Module:
    """Load the weights of `model.weights`, if any, into the module; return the module."""
    if run.model.weights:
        load_weights(module, run.model.weights, run.model.weights_except, image_channels(shape))
    return module


def image_channels(shape: Shape) -> int | None:
    """Return the channels of an image, 1 for a sample of another shape, or None for several inputs."""
    (first, *others) = input_shapes(shape)
    if others:
        return None
    return first[0] if len(first) == 3 else 1


def activation_in_loss(run: Run) -> str | None:
    """Return the final activation of a Keras model that the loss applies itself (to scores), or None."""
    wants_scores = getattr(run.problem, "outputs", None) == "scores"
    return LOSS_ACTIVATIONS.get(run.loss) if wants_scores and isinstance(run.loss, str) else None


def count_parameters(run: Run, manifest: DataManifest, seed: int) -> int:
    """Return the number of trainable parameters of a run's model."""
    shape, outputs = Preprocessor(manifest, run.data, "cpu").shape, model_output_size(run, manifest)
    try:
        # Tensors on `meta` have no storage, so a model that is too large costs no memory.
        with torch.device("meta"):
            model = build_random_model(run, shape, outputs, seed)
    except UserError:
        # The model may read tensor values, which do not exist on "meta".
        model = build_random_model(run, shape, outputs, seed)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def model_output_size(run: Run, manifest: DataManifest) -> int:
    """Return the number of model outputs: classes, or regression targets.

    In dense classification, they are the classes of a place. Two classes need one output with
    binary_cross_entropy. A GAN without class labels has 0.
    """
    numbers = prod(manifest.labels.shape)
    if isinstance(run.problem, RegressionConfig):
        return numbers
    if isinstance(run.problem, DenseClassificationConfig):
        if not manifest.labels.shape:
            raise UserError(
                f"problem: dense_classification needs a label for each token or pixel, but a sample of {manifest.dataset} "
                "has a single label; set problem: classification"
            )
        return run.problem.classes
    if manifest.classes is None:
        if isinstance(run.problem, GanConfig):
            return 0
        if not manifest.labels.shape and isinstance(run.problem, ClassificationConfig):
            raise UserError(
                f"problem: classification needs classes, but the labels of {manifest.dataset} are "
                f"{manifest.labels.dtype} numbers; set problem: regression, or convert the labels to class numbers"
            )
        return numbers
    loss = next(iter(run.loss.values())) if isinstance(run.loss, dict) else run.loss
    return 1 if loss == "binary_cross_entropy" and manifest.classes == 2 else manifest.classes


def compile_module(module: nn.Module, device: str) -> nn.Module:
    """Return a compiled version of `module` that shares its parameters and buffers; it compiles when called.

    Each mini-batch shape is compiled separately, in any order, so the code and the bits of the results do not
    depend on the step at which a run was resumed.
    """
    lacks, remedy = "", ""
    named = (os.environ.get("CXX"), "g++", "clang++")  # as torch looks for a compiler
    if device == "cpu" and not any(shutil.which(name) for name in named if name):
        lacks, remedy = "a C++ compiler, but none was found (CXX, g++, clang++)", "install one"
    if device != "cpu" and not find_spec("triton"):
        lacks, remedy = "the package triton on GPUs", "install triton"
    if lacks:
        raise UserError(f"train.compile: torch.compile needs {lacks}; {remedy}, or remove train.compile")
    guard_torch_compiler()
    import torch._dynamo
    from torch._inductor import config as inductor

    # torch's default folder of compiled code, `torchinductor_<user>` in $TMPDIR, can be prepared by another user, whose code
    # would run.
    if CACHE_VARIABLE not in os.environ:
        try:
            folder = private_folder(Path(tempfile.gettempdir()))
        except (UntrustedPathError, OSError) as error:
            raise UserError(
                f"train.compile: {error}; or set {CACHE_VARIABLE} to a folder that is yours"
            ) from error
        os.environ[CACHE_VARIABLE] = str(folder / "torchinductor")
    # torch keeps precompiled headers in its default folder, which another user may have prepared.
    inductor.cpp_cache_precompile_headers = False
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    return cast(nn.Module, torch.compile(module, dynamic=False))
