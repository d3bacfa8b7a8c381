"""Names of the model zoo; nothing here imports torch, so that an experiment is checked at once."""

MODELS = {
    "simplemlp": "nnlo_lib.models.simple:simplemlp",
    "simplecnn": "nnlo_lib.models.simple:simplecnn",
}
