"""Networks of NNLO and mpi_learn by their names, with the spaces that NNLO searches.

A network is named, or given as a module with get_model() or as JSON of Keras.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft


@dataclass(frozen=True)
class ImportedNetwork:
    """A network of NNLO, or a Python file of the user, by its path; with its data set, and its space in NNLO's searches."""

    name: str
    dataset: str | None = None
    # arguments of the network, or keys with their section
    space: dict[str, Any] = field(default_factory=dict)
    space_note: str = ""  # difference to the space of the original NNLO
    is_user_file: bool = False


# The original NNLO searches up to 1, which drops all units.
DROPOUT = {"uniform": [0.0, 0.95]}


def _integers(low: int, high: int, *names: str) -> dict[str, Any]:
    return {name: {"integer": [low, high]} for name in names}


MNIST = ImportedNetwork(
    "nnlo_mnist", "mnist",
    {**_integers(10, 50, "filters"), **_integers(2, 10, "pool", "kernel"), **_integers(50, 200, "dense"), "dropout": DROPOUT},
)  # fmt: skip
TORCH_MNIST = ImportedNetwork(
    "nnlo_mnist_torch",
    "mnist",
    {**_integers(2, 9, "kernel"), **_integers(50, 200, "dense"), "dropout": DROPOUT},
)
LAYERS = {**_integers(1, 6, "conv_layers", "dense_layers", "kernel"), "dropout": DROPOUT}
CIFAR10 = ImportedNetwork(
    "nnlo_cifar10", "cifar10",
    {**_integers(10, 300, "filters_1", "filters_2", "filters_3"), **_integers(50, 1000, "dense_1", "dense_2"),
     "dropout_1": DROPOUT, "dropout_2": DROPOUT},
)  # fmt: skip
TOPCLASS = ImportedNetwork("nnlo_topclass", None, LAYERS)
TORCH_TOPCLASS = ImportedNetwork("nnlo_topclass_torch", None, LAYERS)
GRU = ImportedNetwork(
    "hls4ml_gru", None,
    {**_integers(200, 300, "units"), **_integers(20, 100, "neurons"), **_integers(1, 5, "layers"),
     "activation": ["relu", "selu", "elu"], "dropout": DROPOUT},
)  # fmt: skip
JEDI = ImportedNetwork(
    "jedi_net", None,
    _integers(10, 100, "hidden", "effects", "outputs")
    | {f"{part}_activation": ["relu", "elu", "selu"] for part in ("effect", "post", "score")},
)  # fmt: skip
GAN = ImportedNetwork(
    "calorimeter_gan", None,
    {**_integers(50, 400, "latent"), "dropout": DROPOUT,
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
    """Set the model that `--model` names and return it; a user's file takes precedence over a network of NNLO."""
    path, known = Path(written), NNLO_NETWORKS.get(Path(written).stem)
    if path.suffix in (".py", ".json", ".torch") and path.is_file():
        call = "; nnlo calls its get_model with model.args" if path.suffix == ".py" else ""
        draft.set("model", {"name": written}, f"{source}{call}")
        return ImportedNetwork(written, known.dataset if known else None, is_user_file=path.suffix == ".py")
    missing = "" if known else "neither a file nor a model of nnlo has this name"
    draft.set("model", {"name": known.name if known else written}, source, missing)
    return known or ImportedNetwork(written)


def set_gan_problem(draft: ExperimentDraft, source: str) -> None:
    """Set the problem and loss of the 3-D GAN (nnlo/train/GanModel.py), regardless of the requested loss."""
    problem = {
        "name": "gan", "energy_weight": 5.0, "generator_batches": 2, "label_flips": 0.05, "energy_range": [0.1, 5.0],
        "sum_polynomial": [0.0018, -0.023, 0.11, -0.28, 2.21],
    }  # fmt: skip
    constants = "loss weights 2, 0.1 and 0.1, errors in percent; 5 % wrong labels, random energies"
    draft.set("problem", problem, f"{source}: {constants}")
    draft.set("loss", "non_saturating", f"{source}: binary cross-entropy of the critic's output")
    draft.note(
        "The original 3-D GAN ignores --loss. It updates the critic with real and with generated showers, then the generator "
        "twice, for each batch. In nnlo, one step trains both networks with the same showers, as with GANONEPASS; "
        "`problem.half_steps: true` gives each update a step and a batch of its own."
    )
