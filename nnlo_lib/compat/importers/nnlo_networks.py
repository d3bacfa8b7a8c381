"""Networks of NNLO and mpi_learn by their names, with the spaces that NNLO searches.

A network is named, or given as a module with get_model() or as JSON of Keras.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft


@dataclass(frozen=True)
class ImportedNetwork:
    """A network of NNLO or of the user.

    Attributes:
        name: model name in experiments, or path of a file.
        dataset: data set that the network's module provides, if any.
        space: search space in the original NNLO: arguments of the network, or keys with their section.
        space_note: difference to the space of the original NNLO, if any.
        is_user_file: True if the network is a Python file of the user.
    """

    name: str
    dataset: str | None = None
    space: dict[str, Any] = field(default_factory=dict)
    space_note: str = ""
    is_user_file: bool = False


# The original NNLO searches up to 1, which drops all units.
DROPOUT = {"uniform": [0.0, 0.95]}
MNIST = ImportedNetwork(
    "nnlo_mnist", "mnist",
    {"filters": {"integer": [10, 50]}, "pool": {"integer": [2, 10]}, "kernel": {"integer": [2, 10]},
     "dense": {"integer": [50, 200]}, "dropout": DROPOUT},
)  # fmt: skip
TORCH_MNIST = ImportedNetwork(
    "nnlo_mnist_torch", "mnist",
    {"kernel": {"integer": [2, 9]}, "dense": {"integer": [50, 200]}, "dropout": DROPOUT},
)  # fmt: skip
LAYERS = {
    "conv_layers": {"integer": [1, 6]},
    "dense_layers": {"integer": [1, 6]},
    "kernel": {"integer": [1, 6]},
    "dropout": DROPOUT,
}
CIFAR10 = ImportedNetwork(
    "nnlo_cifar10", "cifar10",
    {**{f"filters_{number}": {"integer": [10, 300]} for number in (1, 2, 3)},
     **{f"dense_{number}": {"integer": [50, 1000]} for number in (1, 2)},
     **{f"dropout_{number}": DROPOUT for number in (1, 2)}},
)  # fmt: skip
TOPCLASS = ImportedNetwork("nnlo_topclass", None, LAYERS)
TORCH_TOPCLASS = ImportedNetwork("nnlo_topclass_torch", None, LAYERS)
GRU = ImportedNetwork(
    "hls4ml_gru", None,
    {"units": {"integer": [200, 300]}, "neurons": {"integer": [20, 100]}, "layers": {"integer": [1, 5]},
     "activation": ["relu", "selu", "elu"], "dropout": DROPOUT},
)  # fmt: skip
JEDI = ImportedNetwork(
    "jedi_net", None,
    {**{name: {"integer": [10, 100]} for name in ("hidden", "effects", "outputs")},
     **{f"{part}_activation": ["relu", "elu", "selu"] for part in ("effect", "post", "score")}},
)  # fmt: skip
GAN = ImportedNetwork(
    "calorimeter_gan", None,
    {"latent": {"integer": [50, 400]}, "dropout": DROPOUT,
     "problem.energy_weight": {"log_uniform": [0.5, 50.0]}, "problem.sum_weight": {"log_uniform": [0.5, 50.0]}},
    "The original NNLO also searches the weights of the GAN's three losses. nnlo searches two, energy and sum relative to "
    "the score, because a factor of all three only scales the gradient; set the ranges of problem.energy_weight and "
    "problem.sum_weight as you need them.",
)  # fmt: skip
NNLO_NETWORKS = {
    "mnist": MNIST, "cifar10": CIFAR10, "topclass": TOPCLASS, "gan": GAN, "example_mnist": MNIST,
    "example_mnist_torch": TORCH_MNIST, "example_cifar10": CIFAR10, "example_topclass": TOPCLASS,
    "example_topclass_torch": TORCH_TOPCLASS, "example_hls4mlgru": GRU, "example_jedi_torch": JEDI,
    "mnist_arch": MNIST, "cifar10_arch": CIFAR10,
}  # fmt: skip


def set_model(draft: ExperimentDraft, written: str, source: str) -> ImportedNetwork:
    """Set the model of NNLO's command; a user's file takes precedence over a network of NNLO.

    Args:
        written: value of `--model`: name of a network, or path of a file.

    Returns:
        The network; if it is unknown, a network with the name `written`.
    """
    path, known = Path(written), NNLO_NETWORKS.get(Path(written).stem)
    if path.suffix == ".py" and path.is_file():
        draft.set("model", {"name": written}, f"{source}; nnlo calls its get_model with model.args")
        return ImportedNetwork(written, known.dataset if known else None, is_user_file=True)
    if path.suffix in (".json", ".torch") and path.is_file():
        draft.set("model", {"name": written}, source)
        return ImportedNetwork(written, known.dataset if known else None)
    if known is None:
        reason = "neither a file nor a model of nnlo has this name"
        draft.set("model", {"name": written}, source, reason)
        return ImportedNetwork(written)
    draft.set("model", {"name": known.name}, source)
    return known


def set_gan_problem(draft: ExperimentDraft, source: str) -> None:
    """Set the problem and loss of the 3-D GAN (nnlo/train/GanModel.py), regardless of the requested loss."""
    draft.set(
        "problem",
        {
            "name": "gan",
            "energy_weight": 5.0,
            "generator_batches": 2,
            "label_flips": 0.05,
            "energy_range": [0.1, 5.0],
            "sum_polynomial": [0.0018, -0.023, 0.11, -0.28, 2.21],
        },
        f"{source}: loss weights 2, 0.1 and 0.1, errors in percent; 5 % wrong labels, random energies",
    )
    draft.set("loss", "non_saturating", f"{source}: binary cross-entropy of the critic's output")
    draft.note(
        "The original 3-D GAN ignores --loss. It updates the critic with real and with generated showers, then the generator "
        "twice, for each batch. In nnlo, one step trains both networks with the same showers, as with GANONEPASS; "
        "`problem.half_steps: true` gives each update a step and a batch of its own."
    )
