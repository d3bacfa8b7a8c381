"""What experiments will have, by the key it is to have: written as a comment until it is there.

Whoever adds one of them under another name changes its key here.
"""

from typing import Any, NamedTuple

from nnlo_lib.translate.draft import Draft


class Coming(NamedTuple):
    """A key, and why it cannot be set today."""

    key: str
    because: str

    def to(self, draft: Draft, value: Any, said: str) -> None:
        """Set it, if it is there after all."""
        draft.set(self.key, value, said, self.because)


EARLY_STOPPING = Coming("train.early_stopping", "training ends after train.epochs, not before")
TARGET = Coming("train.target", "training ends after train.epochs, not at a value of a metric")
STOP_AT_LOSS = Coming("train.target", "training ends after train.epochs, not at a loss")
PLATEAU = Coming("train.schedule", "no schedule looks at metrics yet")
STEPS = Coming("train.schedule", "no schedule steps yet")
WARM_UP = Coming("train.warm_up", "learning rates do not warm up yet")
EVALUATE_BEFORE = Coming("train.evaluate_before", "a model is evaluated after its training only")
WEIGHTS = Coming("model.weights", "weights are read from safetensors, state_dicts of torch and HDF5 of Keras")
PRECISION = Coming("train.precision", "all is float32")
TRACE = Coming("trace", "ranks write no trace")
MONITOR = Coming("monitor", "processors and memory are not watched")
PROFILE = Coming("profile", "ranks are not profiled")
GAN = Coming("problem", "it goes with a model of two networks and a loss of theirs only, docs/gans.md")
NCCL = Coming("parallel.gpu_exchange", "without GPUs there is nothing for NCCL to move")
