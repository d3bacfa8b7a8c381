"""Check that folds, splits, batches and workers fit the number of samples."""

import numpy as np

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.base import default
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.sampler import SharedOrderSampler
from nnlo_lib.data.partition.validation_split import split_train_validation, split_whole_shards
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.preflight.mistake import Mistakes

MAX_LABEL_SHARDS = 64  # stores with more shards take seconds to open, so their classes are not counted


def check_sample_counts(experiment: Experiment, run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Add the mistakes in the numbers of a run.

    Args:
        experiment: experiment of the run.
        run: the run.
        manifest: manifest of the run's data, without splits if the number of samples is unknown.
        mistakes: list to which mistakes are added.
    """
    with mistakes.collected("data", "validation"):
        _check_splits(experiment, run, manifest)
    if "train" not in manifest.splits:
        return
    folds = {
        "folds": experiment.folds,
        "search.folds.k": experiment.search.folds.k if experiment.search else 1,
    }
    samples = manifest.splits["train"].samples
    for key, count in folds.items():
        with mistakes.collected(*key.split(".")):
            samples = min(samples, _training_samples(run, manifest, count))
            if count > 1 and run.data.stratify and run.data.split_by == "sample":
                _check_classes(manifest, count)
    with mistakes.collected("train", "batch_size"):
        _check_batches(run, samples)


def _check_splits(experiment: Experiment, run: Run, manifest: DataManifest) -> None:
    """Raise UserError if the data set is known to lack the split that validates or tests.

    Args:
        experiment: experiment of the run.
        run: the run.
        manifest: manifest of its data.
    """
    wanted = run.data.validation
    # Only a store has settings: expected manifests list no other split than `train`.
    complete = bool(manifest.settings)
    if complete and isinstance(wanted, str) and wanted not in manifest.splits:
        raise UserError(f"{run.data.dataset} has no split {wanted}; it has {', '.join(manifest.splits)}")
    if complete and "test" not in manifest.splits and not wanted and experiment.folds == 1:
        raise UserError(
            f"{run.data.dataset} has no test split, so that 0 leaves no samples to evaluate the model; set it to 0.1"
        )


def _training_samples(run: Run, manifest: DataManifest, folds: int) -> int:
    """Return the number of training samples beside the validation samples.

    Raises UserError if training or validation would have no samples.

    Args:
        run: the run.
        manifest: manifest of its data.
        folds: number of folds.
    """
    fraction = run.data.validation if isinstance(run.data.validation, float) else 0.0
    fold = None if folds == 1 else 0
    shards = manifest.splits["train"].shards
    if run.data.split_by == "shard" and shards:
        train, _ = split_whole_shards([shard.samples for shard in shards], fraction, folds, fold, 0)
        return len(train)
    train, _ = split_train_validation(manifest.splits["train"].samples, None, fraction, folds, fold, 0)
    return len(train)


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
        order, steps = np.arange(samples), train.steps_per_epoch
        processes = run.parallel.processes_per_worker
        SharedOrderSampler(order, train.batch_size, workers, 0, 0, steps_per_epoch=steps, processes=processes)
    # The default is no mistake of the user: such a batch simply has all samples.
    if train.batch_size > samples and train.batch_size != default(type(train), "batch_size"):
        raise UserError(
            f"{train.batch_size} is more than the {samples} training samples; use a smaller batch"
        )
