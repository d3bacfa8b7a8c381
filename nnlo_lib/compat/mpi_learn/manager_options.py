"""The arguments of mpi_learn's `MPIManager` that become settings of the experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class ManagerOptions:
    """Arguments by mpi_learn's names.

    Attributes:
        num_processes: processes of a worker.
        early_stopping: metric, direction and patience as text, or None.
        target_metric: metric, sign and value as text, or None.
        monitor: True to sample CPUs, memory and GPUs.
        checkpoint: name of the checkpoints, or None.
        checkpoint_interval: epochs between two checkpoints; without `checkpoint` or `folder`, there are none.
        custom_objects: Keras classes and functions of the user, by name.
        own_folder: the manager's argument `folder`.
    """

    num_processes: int = 1
    early_stopping: str | None = None
    target_metric: str | None = None
    monitor: bool = False
    checkpoint: str | None = None
    checkpoint_interval: int = 5
    custom_objects: dict[str, Any] | None = None
    own_folder: str | None = None

    @property
    def folder(self) -> str | None:
        """Folder of results and checkpoints: `folder`, or the name of the checkpoints; None: deleted at the end."""
        return self.own_folder or self.checkpoint

    def experiment_settings(self) -> dict[str, Any]:
        """Return the equivalent settings. Raises UserError if they would have no effect."""
        if self.monitor and not self.folder:
            raise UserError(
                "MPIManager: monitor: the measurements are files of the results, which are deleted at the end without `folder`; "
                'set folder="results/mine", or monitor=False'
            )
        train = {"early_stopping": self.early_stopping, "target": self.target_metric}
        settings: dict[str, Any] = {
            "train": {key: text for key, text in train.items() if text},
            "parallel": {"processes_per_worker": self.num_processes},
        }
        if self.monitor:
            # In seconds, as mpi_learn's monitor.
            settings["observe"] = {"monitor": 0.5}
        if self.checkpoint:
            settings["checkpoint"] = {"every": f"{self.checkpoint_interval} epochs"}
        return settings

    @contextmanager
    def keras_objects(self) -> Iterator[None]:
        """Let Keras find `custom_objects` while a model is built."""
        if not self.custom_objects:
            yield
            return
        import keras

        with keras.saving.custom_object_scope(self.custom_objects):
            yield
