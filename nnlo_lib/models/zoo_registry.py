"""Names of the models: the zoo's, and `<prefix>:<name>` of other packages.

The module imports neither torch nor these packages, so that experiments are checked quickly.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

# (file in nnlo_lib/models/zoo, names of its functions, which are the names of the models), in the order of the schema.
FILES = (
    ("convolutional", "simplemlp simplecnn alexnet alexnet_2012"),
    ("convolutional", "vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn"),
    ("convolutional", "vgg1 vgg2 vgg3 vgg3do vgg3do2 vgg3dobn"),
    ("inception", "googlenet inception_v3"),
    ("resnet", "resnet18 resnet34 resnet50 resnet101 resnet152 wide_resnet50_2 wide_resnet101_2"),
    ("resnet", "resnet20 resnet32 resnet44 resnet56 resnet110 resnet1202 wide_resnet"),
    ("inception", "densenet40 densenet_bc100 densenet121 densenet161 densenet169 densenet201"),
    ("convolutional", "mobilenet_v1"),
    ("recurrent", "hls4ml_gru"),
    ("particle_physics", "jedi_net"),
    ("coordinate_networks", "fourier siren perceptron"),
    ("recurrent", "lstm"),
    ("gpt", "gpt"),
    ("convolutional", "unet theanompi_cifar10"),
)
GANS = {  # each has a generator and a critic
    "wgan": "nnlo_lib.models.zoo.gan:wgan",
    "lsgan": "nnlo_lib.models.zoo.gan:lsgan",
    "lsgan_cifar": "nnlo_lib.models.zoo.gan:lsgan_cifar",
    "calorimeter_gan": "nnlo_lib.models.zoo.gan:calorimeter_gan",
}
MODELS = {
    "dinno_conv": "nnlo_lib.models.zoo.coordinate_networks:conv",
    "nnlo_cifar10": "nnlo_lib.models.zoo.particle_physics:cifar10",
    "nnlo_mnist": "nnlo_lib.models.zoo.particle_physics:mnist",
    "nnlo_mnist_torch": "nnlo_lib.models.zoo.particle_physics:mnist_torch",
    "nnlo_topclass": "nnlo_lib.models.zoo.particle_physics:topclass",
    "nnlo_topclass_torch": "nnlo_lib.models.zoo.particle_physics:topclass_torch",
    **{name: f"nnlo_lib.models.zoo.{file}:{name}" for file, names in FILES for name in names.split()},
    **GANS,
}
LIBRARIES = {"timm": "timm", "hf": "transformers"}  # prefix -> package
PATTERN = r"^(timm|hf):[\w.-]+$"


def library_of(name: str) -> str | None:
    """Return the prefix of a model's name, or None if the model is of the zoo or of a file."""
    prefix, colon, network = name.partition(":")
    return prefix if colon and network and prefix in LIBRARIES else None


def missing_library(name: str) -> str | None:
    """Return the error message with the remedy if the package of a model is not installed, else None."""
    prefix = library_of(name)
    if prefix is None or find_spec(LIBRARIES[prefix]) is not None:
        return None
    return f"{name} requires {LIBRARIES[prefix]}, which is not installed; pip install 'nnlo[{prefix}]'"


def similar_names(name: str, known: Iterable[str]) -> str:
    """Return known names that are similar to an unknown one, as text of an error."""
    found = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(found)}?" if found else "check the name in its documentation"
