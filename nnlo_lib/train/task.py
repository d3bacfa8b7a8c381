"""One training to be done: which run of which experiment, on which data, written where."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.config import Linear, Log, Run


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
    def state(self) -> Path:
        """Folder that survives a failed attempt."""
        return self.folder / "state"

    @property
    def key(self) -> str:
        """Fingerprint of what a checkpoint must agree with to be continued.

        Not the number of epochs, unless the learning rate runs to its `final` value within them.
        """
        free = set() if isinstance(self.run.train.schedule, Linear | Log) else {"epochs"}
        settings = self.run.model_dump(
            exclude={
                "resources": True,
                "checkpoint": True,
                "train": free,
                "parallel": {"peer_timeout", "transport", "ranks"},
            }
        )
        text = json.dumps(
            [settings, self.seed, self.fold, self.folds, self.manifest.read_text()], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()
