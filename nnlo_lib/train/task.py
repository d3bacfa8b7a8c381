"""Description of one training: experiment, run, seed, fold, data and folder; the store of its data without Snakemake."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from nnlo_lib.config import Run
from nnlo_lib.config.base import EditEffect, keys_with, non_defaults
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.store.convert import Conversion, convert
from nnlo_lib.data.store.manifest import manifest_fingerprint
from nnlo_lib.data.store_location import RAW_FOLDER, StoreLocation
from nnlo_lib.state.published_results import input_checksums


@dataclass(frozen=True)
class Task:
    """One training job: a run with a seed and, in cross-validation, a fold that is held out."""

    rank_module: ClassVar[str] = "nnlo_lib.train.rank"  # which each rank runs with the task's JSON
    experiment: str
    name: str
    run: Run
    seed: int
    fold: int | None
    folds: int
    manifest: Path
    folder: Path
    # epoch after which the training pauses and saves, for trials of a search; None to train to the end
    until: int | None = None
    # checkpoint of another training of the same fold, from which this one starts; None to start with initial weights
    start: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the task from its JSON `text`."""
        fields = json.loads(text)
        paths = {name: Path(fields[name]) for name in ("manifest", "folder", "start") if fields[name]}
        return cls(**{**fields, **paths, "run": Run.model_validate(fields["run"])})

    @property
    def text(self) -> str:
        """The task as JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps(fields | {"run": self.run.model_dump(mode="json")}, default=str)

    @property
    def stream_seed(self) -> int:
        """Seed of this training's random streams: initial weights, order of samples, dropout, exchanges.

        Each fold has its own streams; `seed` alone divides the samples into folds. Folds that shared initial weights
        would agree by more than the overlap of their training samples, for which the tests of folds correct.
        """
        # The first fold and a training without folds keep the streams of `seed`.
        return derive_seed(self.seed, "fold", self.fold) if self.fold else self.seed

    @property
    def ends_at(self) -> int:
        """Number of completed epochs at which the task is done."""
        return min(self.until or self.run.train.epochs, self.run.train.epochs)

    @property
    def normalizes_training_samples(self) -> bool:
        """Whether `normalize: standard` excludes held-out samples: a fold, or a fraction of the training split."""
        validation = self.run.data.validation
        holds_out = self.fold is not None or (isinstance(validation, float) and validation > 0)
        return self.run.data.normalize == "standard" and holds_out

    @property
    def paths(self) -> RunPaths:
        """Paths of the files that this training writes."""
        return RunPaths(self.folder)

    @property
    def state(self) -> Path:
        """Folder that survives a failed attempt."""
        return self.paths.state.folder

    @property
    def observe_folder(self) -> Path:
        """Folder for the observers' files of this training, kept apart from other fingerprints."""
        return self.paths.state.observed / self.fingerprint[:8]

    @cached_property
    def input_checksums(self) -> dict[str, str]:
        """SHA-256 of each user's file that the result depends on; first read before the code is imported."""
        return input_checksums(self.run)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all inputs that must be unchanged to resume from a checkpoint.

        Of the configuration, it includes only values that differ from the defaults, so that a later version
        with more keys can resume; if a default changes its meaning, the version of checkpoints changes. It
        includes the number of epochs only if the learning-rate schedule depends on it.
        """
        # A change of `parallel.ranks` is allowed here and checked when the run resumes.
        free = keys_with(Run, EditEffect.NEXT_ATTEMPT, EditEffect.SAME_DATA, EditEffect.RESUME)
        if self.run.train.schedule.depends_on_epochs:
            free = tuple(key for key in free if key != "train.epochs")
        settings = non_defaults(self.run.with_defaults_for(*free))
        # Without the paths, which a move of the project changes; the order of the files tells them apart.
        read = self.input_checksums.values()
        # Trainings of earlier versions were normalized with their held-out samples.
        normalized = ["normalized by training samples"] if self.normalizes_training_samples else []
        # Folds of earlier versions had the initial weights of the first fold.
        streams = ["streams of the fold"] if self.fold else []
        samples = manifest_fingerprint(self.manifest)
        inputs = [settings, self.seed, self.fold, self.folds, samples, *normalized, *streams, *read]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def prepare_store(store: StoreLocation) -> Path:
    """Fetch and convert the data of a store unless it exists; return the path of its manifest."""
    if not store.manifest.exists():
        fetch(store.settings.spec, store.raw, store.settings.source)
        convert(Conversion(store.settings, store.raw, store.folder, store.key))
    return store.manifest


def prepare_dataset(data: DataConfig, target: Path) -> None:
    """Fetch a data set and convert it to a store in the folder `target`, which the caller names."""
    prepare_store(StoreLocation(data.store_settings, target, target.parent / RAW_FOLDER))
