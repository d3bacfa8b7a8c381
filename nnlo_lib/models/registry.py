"""Names of the model zoo; nothing here imports torch, so that an experiment is checked at once."""

MODELS = {
    "dinno_conv": "nnlo_lib.models.dinno:conv",
    "nnlo_cifar10": "nnlo_lib.models.nnlo:cifar10",
    "simplemlp": "nnlo_lib.models.simple:simplemlp",
    "simplecnn": "nnlo_lib.models.simple:simplecnn",
}
