"""Theano-MPI's models and the training constants in their files."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TheanoModel:
    """A model with the training constants of its file.

    Attributes:
        name: model name in experiment files.
        dataset: data set.
        epochs: number of epochs.
        batch: samples per step and worker.
        optimizer: optimizer settings; the learning rate is per worker.
        schedule: schedule settings, empty for a constant learning rate.
        args: arguments of the model.
        extra_settings: other keys of the experiment.
    """

    name: str
    dataset: str
    epochs: int
    batch: int
    optimizer: dict[str, Any]
    schedule: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    extra_settings: dict[str, Any] = field(default_factory=dict)


def _sgd(lr: float, decay: float) -> dict[str, Any]:
    return {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": decay}


def _tenths(*epochs: int) -> dict[str, Any]:
    return {"name": "multi_step", "milestones": list(epochs), "factor": 0.1}


def _imagenet(crop: int) -> dict[str, Any]:
    """Return the keys for images of 256 x 256 pixels: a random crop in training, the center else, and mirrors."""
    reader = {"name": "tfrecord", "resize": "standard", "size": 256}
    return {"data.reader": reader, "data.crop": crop, "data.augment.flip": 0.5, "data.normalize": "standard"}


RESNET = _sgd(0.0125, 1e-4), _tenths(30, 60, 80)
LSGAN = {"problem": {"name": "gan"}, "loss": "least_squares"}
MODELS = {
    "AlexNet": TheanoModel("alexnet_2012", "imagenet", 70, 128, _sgd(0.01, 5e-4), _tenths(20, 40, 60), {}, _imagenet(227)),
    "GoogLeNet": TheanoModel(
        "googlenet", "imagenet", 90, 32, _sgd(0.005, 2e-4), {"name": "polynomial", "power": 0.5},
        {"auxiliary": True}, {"loss_weights": {"1": 0.3, "2": 0.3}} | _imagenet(224),
    ),
    "VGG16": TheanoModel("vgg16", "imagenet", 40, 64, _sgd(0.002, 5e-4), _tenths(15, 30, 35), {}, _imagenet(224)),
    "ResNet50": TheanoModel("resnet50", "imagenet", 90, 32, *RESNET, {}, _imagenet(224)),
    "ResNet152": TheanoModel("resnet152", "imagenet", 90, 32, *RESNET, {}, _imagenet(224)),
    "Cifar10_model": TheanoModel(
        "theanompi_cifar10", "cifar10", 70, 256, _sgd(0.01, 1e-4), _tenths(50, 60, 65), {},
        {"data.crop": 28, "data.augment.flip": 0.5, "data.normalize": "standard"},
    ),
    "Wide_ResNet": TheanoModel(
        "wide_resnet", "cifar10", 90, 128, {"name": "adam", "lr": 0.001}, _tenths(50, 70, 90),
        {"widen": 4, "dropout": 0.3},
    ),
    "LSTM": TheanoModel("lstm", "imdb", 100, 16, {"name": "adadelta", "lr": 1.0}),
    "WGAN": TheanoModel(
        "wgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 5e-5}, {}, {},
        {"problem": {"name": "gan", "critic_steps": 2, "weight_clip": 0.01}, "loss": "wasserstein"},
    ),
    "LSGAN": TheanoModel("lsgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 1e-4}, extra_settings=LSGAN),
    "LSGAN of CIFAR-10": TheanoModel("lsgan_cifar", "cifar10", 100, 128, {"name": "rmsprop", "lr": 1e-4}, extra_settings=LSGAN),
}  # fmt: skip
GANS = {
    "WGAN": "in Theano-MPI, the critic sometimes takes 50 steps; nnlo always takes 2 critic steps per generator step, and "
    "also exchanges the generator",
    "LSGAN": "Theano-MPI decreases the learning rates linearly in the second half of the epochs and exchanges only the "
    "critic; nnlo keeps the learning rates constant and exchanges both networks",
}


def find_theano_model(file: str, cls: str) -> TheanoModel | None:
    """Return a model of Theano-MPI, or None; `file` distinguishes the two models named LSGAN."""
    if not file.startswith("theanompi"):
        return None
    return MODELS.get(f"{cls} of CIFAR-10" if cls == "LSGAN" and "cifar" in file else cls)
