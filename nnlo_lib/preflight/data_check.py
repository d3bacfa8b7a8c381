"""Checks of a run's data before and after the conversion: source files, shapes, numbers of samples, targets.

`Mistakes` collects what the checks find, each with the key of the experiment that is to be corrected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.base import default
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import store_of
from nnlo_lib.config.reader import (
    ArraysReaderConfig,
    LidarReaderConfig,
    SyntheticReaderConfig,
    TableReaderConfig,
    TFRecordReaderConfig,
)
from nnlo_lib.config.rules.key_names import all_keys
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.fetch.archive import ARCHIVE_SUFFIXES, find_plain_or_gzip, is_archive
from nnlo_lib.data.fetch.record import is_remote
from nnlo_lib.data.loading.sampler import SamplingPlan, check_window
from nnlo_lib.data.partition import split_train_validation, split_whole_shards
from nnlo_lib.data.readers.base import Array, DatasetContents, Indices
from nnlo_lib.data.source_identity import read_contents
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, SplitInfo
from nnlo_lib.data.store.sample_statistics import ChannelMoments, pooled
from nnlo_lib.data.store.split import Split, stored_labels
from nnlo_lib.experiment.checks import Mistake
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.problems.targets import check_mixture, check_target_range, class_weights, measured_splits

SAMPLES = 16  # read to find the shape of the samples, for example after an adaptor
MAX_LABEL_SHARDS = 64  # stores with more shards take seconds to open, so their classes are not counted
MAX_COUNTED_BYTES = 64 << 20  # of source files, which are read within a second
MAX_TARGETS = 20_000_000  # numbers of a split, which are read within a second; a training checks all of them


class Mistakes(list[Mistake]):
    """Mistakes of the settings of the run `name`, each with a key in the run's overrides or else in the base."""

    def __init__(self, experiment: Experiment, name: str) -> None:
        super().__init__()
        self.experiment, self._name = experiment, name

    def add(self, key: KeyPath, message: str) -> None:
        """Add a mistake at a key of the run."""
        is_own = key[0] in self.experiment.runs.get(self._name, {})
        self.append((("runs", self._name, *key) if is_own else key, message))

    def add_error(self, key: KeyPath, error: UserError) -> None:
        """Add the message of an error, at the key that it begins with, such as `data.crop: 40 needs ...`, or else at `key`."""
        named, colon, text = str(error).partition(": ")
        # Not the name of a file, such as train.npz.
        is_key = colon and named in all_keys(Experiment)
        self.add(tuple(named.split(".")) if is_key else key, text if is_key else str(error))

    @contextmanager
    def collected(self, *key: str) -> Iterator[None]:
        """Add the UserError that the context raises, as `add_error` does."""
        try:
            yield
        except UserError as error:
            self.add_error(key, error)

    @contextmanager
    def collected_of_user(self, *key: str) -> Iterator[None]:
        """Add, at `key`, any error that the user's code in the context raises, with its source line."""
        try:
            yield
        except USER_CODE_ERRORS as error:
            self.add(key, str(error) if isinstance(error, UserError) else error_with_source_line(error))


def distinct_runs(runs: Mapping[str, Run], identity: Callable[[Run], str]) -> Iterator[tuple[str, Run]]:
    """Yield the name and the first run of each identity, so that shared settings are checked once."""
    first: dict[str, str] = {}
    for name, run in runs.items():
        if first.setdefault(identity(run), name) == name:
            yield name, run


def check_source(run: Run, mistakes: Mistakes) -> None:
    """Add the mistake in the source of data that are not converted yet; after the conversion, the files may be removed."""
    with mistakes.collected("data", "source"):
        with suppress(UserError):  # of which `_check_source` finds the reason
            if store_of(run, leads=True).manifest.exists():
                return
        _check_source(run.data)


def _check_source(data: DataConfig) -> None:
    """Raise UserError if the source is missing or lacks files; URLs and the contents of archives are not checked."""
    known = CATALOG.get(data.dataset)
    if data.source is None:
        if known and not known.has_fixed_source:
            raise UserError(
                f"required, because {known.name} has no download address; set the folder of the files ({known.hint})"
            )
        return
    if is_remote(data.source):
        return
    path = Path(data.store_settings.source or "")
    if not path.exists():
        raise UserError(
            f"no such file or folder: {data.source}; paths are relative to the working directory of nnlo"
        )
    official = known.files if known else ()
    if not path.is_dir():
        # A file of the catalog may have any name.
        if not is_archive(path.name) and not official:
            raise UserError(
                f"{path} is neither a folder nor an archive ({' '.join(ARCHIVE_SUFFIXES)}); for a table (CSV, Parquet, Arrow, ROOT), set "
                "data.reader: {name: table, label: COLUMN}"
            )
    elif known and official:
        names = [file.name for file in (*official, *([known.instead] if known.instead else []))]
        if not any(find_plain_or_gzip(path, name) for name in names):
            raise UserError(
                f"{path} has none of the files of {known.name}: {', '.join(names)}; for other files, such as extracted ones, set "
                f"data.dataset to a name of your own and data.reader: {known.reader}"
            )
    elif isinstance(data.reader, ArraysReaderConfig | TableReaderConfig):
        # The headers of all array files, or all rows of a table, as the conversion reads them.
        try:
            read_contents(data.store_settings, path)
        except UserError as error:
            raise UserError(f"data.reader: {str(error).removeprefix('data.reader: ')}") from error
    elif isinstance(data.reader, TFRecordReaderConfig) or data.dataset == "imagenet":
        read_contents(data.store_settings, path)


def expected_manifest(run: Run) -> DataManifest | None:
    """Return the manifest of a run's data; None if the shape of the samples is unknown before the conversion.

    Raises UserError if the store or the source files are damaged.
    """
    path, data = store_of(run, leads=True).manifest, run.data
    if path.exists():
        return DataManifest.load(path)

    def future(
        inputs: Sequence[ArraySpec],
        labels: ArraySpec,
        samples: Mapping[str, int],
        of: DatasetContents,
        scale: float,
    ) -> DataManifest:
        splits = {split: SplitInfo(count, ()) for split, count in samples.items()}
        return DataManifest(
            path.parent, data.dataset, data.format, tuple(inputs), labels, of.classes, of.first_class, of.class_names, scale,
            {}, splits, columns=of.columns,
        )  # fmt: skip

    known, reader, contents = CATALOG.get(data.dataset), data.reader, _readable_contents(data)
    if data.has_robots:
        lidar = reader if isinstance(reader, LidarReaderConfig) else LidarReaderConfig()
        count = (len(lidar.waypoints) or lidar.robots) * lidar.scans * lidar.beams * lidar.points
        points = _column("points", np.empty((0, 2), np.float32))
        return future(
            [points], ArraySpec("occupied", (), "float32"), {"train": count}, DatasetContents(()), 1.0
        )
    if known and known.generated and contents:
        made = reader if isinstance(reader, SyntheticReaderConfig) else SyntheticReaderConfig()
        images = _column("features", np.empty((0, *made.shape), np.uint8))
        return future([images], ArraySpec("labels", (), "int64"), {"train": made.samples}, contents, 1 / 255)
    if contents:
        return future(*_measured(data, contents))
    side = getattr(reader, "size", data.crop)
    shape = (known.shape if known else None) or ((3, side, side) if side else None)
    if known is None or shape is None:
        return None
    stored = ("uint8", "int64") if known.classes else ("float32", "float32")
    return future(
        [_column("inputs", np.empty((0, *shape), stored[0]))], ArraySpec("labels", (), stored[1]),
        {"train": known.train_samples} if known.train_samples else {}, DatasetContents((), classes=known.classes), known.scale,
    )  # fmt: skip


def _measured(
    data: DataConfig, contents: DatasetContents
) -> tuple[list[ArraySpec], ArraySpec, dict[str, int], DatasetContents, float]:
    """Return inputs, labels, samples by split, and the scale of a byte, of array files or tables."""
    samples = dict[str, int]()
    for unit in contents.units:
        count = sum(part.samples for part in unit.parts) or len(unit.read().labels)
        samples[unit.split] = samples.get(unit.split, 0) + count
    # A few samples show the shape, also after an adaptor.
    first = read_contents(replace(data.store_settings, shard_size=SAMPLES), _folder(data)).units[0].read()
    inputs = list(map(_column, contents.inputs, first.inputs))
    if contents.columns:
        rows = [ChannelMoments.of(unit.read().inputs[0]) for unit in contents.units if unit.split == "train"]
        inputs = [replace(inputs[0], mean=pooled(rows).means, std=pooled(rows).deviations)]
    labels = ArraySpec(contents.labels, first.labels.shape[1:], first.labels.dtype.name)
    return inputs, labels, samples, contents, 1 / 255 if first.inputs[0].dtype == np.uint8 else 1.0


def _folder(data: DataConfig) -> Path:
    return Path(data.store_settings.source or "")


def _readable_contents(data: DataConfig) -> DatasetContents | None:
    """Return the contents of generated data, of array files or of tables, or None for sources of other kinds."""
    known = CATALOG.get(data.dataset)
    has_files = isinstance(data.reader, ArraysReaderConfig | TableReaderConfig) and _folder(data).is_dir()
    is_readable = has_files or bool(known and known.generated)
    return read_contents(data.store_settings, _folder(data)) if is_readable else None


def class_counts(run: Run, manifest: DataManifest) -> dict[str, Indices] | None:
    """Return the number of samples of each class by split, (classes,) each; None if the labels take long to read.

    They are read from the store or, before the conversion, from array files and tables.
    """
    labels: dict[str, list[Array]] = {}
    if manifest.settings:  # only a store has settings
        if sum(len(split.shards) for split in manifest.splits.values()) > MAX_LABEL_SHARDS:
            return None
        for split in manifest.splits:
            labels[split] = list(stored_labels(manifest, split))
    else:
        contents = _readable_contents(run.data)
        files = {path for unit in contents.units for path in unit.sources} if contents else ()
        if contents is None or sum(path.stat().st_size for path in files) > MAX_COUNTED_BYTES:
            return None
        for unit in contents.units:
            labels.setdefault(unit.split, []).append(unit.read().labels)
    return {
        split: np.bincount(
            np.concatenate(parts).reshape(-1).astype(np.int64) - manifest.first_class,
            minlength=manifest.classes or 0,
        )
        for split, parts in labels.items()
    }


def _column(name: str, samples: Array) -> ArraySpec:
    shape = samples.shape[1:]
    channels = shape[0] if shape else 1
    # Mean 0 and deviation 1: the statistics are unknown before the conversion, and no layer depends on them.
    return ArraySpec(name, shape, samples.dtype.name, (0.0,) * channels, (1.0,) * channels)


def check_sample_counts(run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Add the mistakes in the numbers of a run; the manifest has no splits if the number of samples is unknown."""
    experiment, data = mistakes.experiment, run.data
    # Expected manifests of other sources list no other split than `train`.
    is_complete = bool(manifest.settings) or isinstance(data.reader, ArraysReaderConfig | TableReaderConfig)
    if is_complete and (missing := data.missing_split(manifest.splits)):
        mistakes.add(("data", "validation"), missing)
    if is_complete and "test" not in manifest.splits and not data.validation and experiment.folds == 1:
        mistakes.add(
            ("data", "validation"),
            f"{data.dataset} has no test split, so that 0 leaves no samples to evaluate the model; set it to 0.1",
        )
    if "train" not in manifest.splits:
        return
    searched = experiment.search.folds.k if experiment.search else 1
    fraction = data.validation if isinstance(data.validation, float) else 0.0
    split = manifest.splits["train"]
    samples = split.samples
    for key, count in {("folds",): experiment.folds, ("search", "folds", "k"): searched}.items():
        with mistakes.collected(*key):
            folds = fraction, count, None if count == 1 else 0, 0
            if data.split_by == "shard" and split.shards:
                train, _ = split_whole_shards([shard.samples for shard in split.shards], *folds)
            else:
                train, _ = split_train_validation(split.samples, None, *folds)
            samples = min(samples, len(train))
            if count > 1 and data.stratify and data.split_by == "sample":
                _check_classes(manifest, count)
    with mistakes.collected("train", "batch_size"):
        _check_batches(run, samples)


def _check_classes(manifest: DataManifest, folds: int) -> None:
    """Raise UserError if every class has fewer samples than there are folds, so that stratification is impossible."""
    shards = manifest.splits["train"].shards
    if manifest.classes is None or not 0 < len(shards) <= MAX_LABEL_SHARDS:
        return
    largest = int(np.bincount(Split(manifest, "train").labels).max())
    if largest < folds:
        raise UserError(
            f"{folds} folds of the same proportions need a class of at least {folds} samples, but the largest has {largest}; "
            "use fewer folds, or set data.stratify: false"
        )


def _check_batches(run: Run, samples: int) -> None:
    """Raise UserError if the batches and steps of an epoch do not fit the number of training samples."""
    train, workers = run.train, run.parallel.ranks - run.algorithm.servers
    if run.data.partition.name == "iid" and train.dealing == "static":
        # The sampler refuses more workers than samples, and too many steps per epoch.
        processes, parts = run.parallel.processes_per_worker, [np.arange(samples)]
        plan = SamplingPlan(parts, workers, train.batch_size, 0, train.steps_per_epoch, processes=processes)
        plan.sampler(0)
    if run.data.stream:
        check_window(run.data.stream.window, samples // (workers // run.parallel.processes_per_worker))
    # The default is no mistake of the user: such a batch simply has all samples.
    if train.batch_size > samples and train.batch_size != default(type(train), "batch_size"):
        raise UserError(
            f"{train.batch_size} is more than the {samples} training samples; use a smaller batch"
        )


def check_targets(run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Add the mistakes of the class weights, and of each split whose targets do not fit the loss or the metrics of the run."""
    with mistakes.collected("problem"):
        check_mixture(run, manifest.classes, manifest.inputs)
    # Before a conversion, the classes of some sources have no names yet.
    if manifest.settings or manifest.class_names:
        with mistakes.collected("problem", "class_weights"):
            class_weights(run, manifest.class_labels)
    for split in measured_splits(run, manifest.splits) if manifest.classes is None else ():
        with mistakes.collected("loss"):
            check_target_range(run, _first_labels(manifest, split), split)


def _first_labels(manifest: DataManifest, split: str) -> Iterator[Array]:
    """Yield labels of a split, shard by shard, until the limits are reached."""
    count = 0
    for labels in islice(stored_labels(manifest, split), MAX_LABEL_SHARDS):
        yield labels
        count += labels.size
        if count >= MAX_TARGETS:
            return
