"""One training to be done: which run of which experiment, on which data, written where."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.base import non_defaults
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.data.store.manifest import file_sha256

PLACEMENT_SETTINGS = ("ranks_per_gpu", "master_gpu", "gpu_exchange")  # moves a run, and changes nothing else
BLOCKS_OUTSIDE_FINGERPRINT = ("resources", "checkpoint", "observe")  # and this as little


@dataclass(frozen=True)
class Task:
    """One job of the DAG. manifest: of the data store; folder: where results and `state/` go.

    until: the epoch at which it pauses, saved, as the trials of a search do; None: it is trained to the end.
    """

    experiment: str
    name: str
    run: Run
    seed: int
    fold: int | None
    folds: int
    manifest: Path
    folder: Path
    until: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Task":
        """Read what `text` is."""
        fields = json.loads(text)
        paths = {"manifest": Path(fields["manifest"]), "folder": Path(fields["folder"])}
        return cls(**{**fields, **paths, "run": Run.model_validate(fields["run"])})

    @property
    def text(self) -> str:
        """The task as JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps(fields | {"run": self.run.model_dump(mode="json")}, default=str)

    @property
    def ends_at(self) -> int:
        """The epoch with which the task is done."""
        return min(self.until or self.run.train.epochs, self.run.train.epochs)

    @property
    def paths(self) -> RunPaths:
        """Names of the files that this training writes."""
        return RunPaths(self.folder)

    @property
    def state(self) -> Path:
        """Folder that survives a failed attempt."""
        return self.paths.state.folder

    @property
    def observe_folder(self) -> Path:
        """Folder of what observers write while it goes on; of this training only."""
        return self.paths.state.observed / self.fingerprint[:8]

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of what a checkpoint must agree with to be continued.

        Of the configuration only what is not the default, so that a later nnlo with more keys goes on; where a default
        changes its meaning, checkpoints get another version. Not the number of epochs, unless the learning rate runs to
        its end within them.
        """
        run = self.run.with_defaults_for(*BLOCKS_OUTSIDE_FINGERPRINT)
        free = () if run.train.schedule.depends_on_epochs else ("epochs",)
        blocks = {
            "train": run.train.with_defaults_for(*free),
            "parallel": run.parallel.with_defaults_for(
                "peer_timeout", "transport", "ranks", *PLACEMENT_SETTINGS
            ),
        }
        settings = non_defaults(run.model_copy(update=blocks))
        read = [file_sha256(Path(path)) for path in self.run.model.input_files]
        text = json.dumps(
            [settings, self.seed, self.fold, self.folds, self.manifest.read_text(), *read], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()
