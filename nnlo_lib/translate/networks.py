"""Networks of NNLO and mpi_learn: by name, as a module with get_model(), or as Keras's JSON."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.translate.draft import Draft


@dataclass(frozen=True)
class Network:
    """Its name here, the data that its module brings along, what NNLO searches of it; own: a file of the user's."""

    name: str
    dataset: str | None = None
    space: dict[str, Any] = field(default_factory=dict)
    own: bool = False


DROPOUT = {"uniform": [0.0, 0.95]}  # NNLO: to 1, where nothing is left
MNIST = Network(
    "nnlo_mnist", "mnist",
    {"filters": {"integer": [10, 50]}, "pool": {"integer": [2, 10]}, "kernel": {"integer": [2, 10]},
     "dense": {"integer": [50, 200]}, "dropout": DROPOUT},
)  # fmt: skip
TORCH_MNIST = Network(
    "nnlo_mnist_torch", "mnist",
    {"kernel": {"integer": [2, 9]}, "dense": {"integer": [50, 200]}, "dropout": DROPOUT},
)  # fmt: skip
LAYERS = {
    "conv_layers": {"integer": [1, 6]},
    "dense_layers": {"integer": [1, 6]},
    "kernel": {"integer": [1, 6]},
    "dropout": DROPOUT,
}
CIFAR10 = Network("nnlo_cifar10", "cifar10")
TOPCLASS = Network("nnlo_topclass", None, LAYERS)
TORCH_TOPCLASS = Network("nnlo_topclass_torch", None, LAYERS)
GRU = Network(
    "hls4ml_gru", None,
    {"units": {"integer": [200, 300]}, "neurons": {"integer": [20, 100]}, "layers": {"integer": [1, 5]},
     "activation": ["relu", "selu", "elu"], "dropout": DROPOUT},
)  # fmt: skip
JEDI = Network("jedi_net", None, {name: {"integer": [10, 100]} for name in ("hidden", "effects", "outputs")})
GAN = Network("calorimeter_gan")
DEFAULT = "until then the default model is trained"
KNOWN = {
    "mnist": MNIST, "cifar10": CIFAR10, "topclass": TOPCLASS, "gan": GAN, "example_mnist": MNIST,
    "example_mnist_torch": TORCH_MNIST, "example_cifar10": CIFAR10, "example_topclass": TOPCLASS,
    "example_topclass_torch": TORCH_TOPCLASS, "example_hls4mlgru": GRU, "example_jedi_torch": JEDI,
    "mnist_arch": MNIST, "cifar10_arch": CIFAR10,
}  # fmt: skip


def network(draft: Draft, written: str, said: str) -> Network:
    """Set the model that NNLO was told; a file of the user's goes before NNLO's own of that name."""
    path, known = Path(written), KNOWN.get(Path(written).stem)
    if path.suffix == ".py" and path.is_file():
        draft.set("model", {"name": written}, f"{said}; its get_model is called with model.args")
        return Network(written, known.dataset if known else None, own=True)
    if path.suffix in (".json", ".torch") and path.is_file():
        draft.set("model", {"name": written}, said)
        return Network(written, known.dataset if known else None)
    if known is None:
        draft.set("model", {"name": written}, said, f"there is no such file or model here; {DEFAULT}")
        return Network(written)
    draft.set("model", {"name": known.name}, said, f"NNLO's network is not in the zoo; {DEFAULT}")
    return known
