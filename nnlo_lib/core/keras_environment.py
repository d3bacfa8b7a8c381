"""Environment variables with which Keras computes with PyTorch on the CPU."""

import os

# Models are built on the CPU; each rank moves its model to its own device.
KERAS_ENVIRONMENT = {"KERAS_BACKEND": "torch", "KERAS_TORCH_DEVICE": "cpu"}


def select_torch_for_keras() -> None:
    """Set the variables; Keras reads them when it is imported, which each file of the user may do."""
    os.environ |= KERAS_ENVIRONMENT
