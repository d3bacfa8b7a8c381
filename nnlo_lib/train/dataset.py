"""Training and validation samples of one training, as one rank uses them."""

from functools import cached_property

import numpy as np

from nnlo_lib.config.problem import ClassificationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.augment import Augment, Mixture
from nnlo_lib.data.loading.loader import BatchLoader
from nnlo_lib.data.loading.sampler import SamplingPlan, ShufflePurpose, shuffled
from nnlo_lib.data.partition import (
    assign_to_workers,
    check_cover,
    save_partition,
    split_train_validation,
    split_whole_shards,
)
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.data.store.manifest import DataManifest, manifest_fingerprint
from nnlo_lib.data.store.split import Split, stored_labels
from nnlo_lib.data.store.staging import StagingJob, stage_dataset
from nnlo_lib.data.training_moments import with_training_moments
from nnlo_lib.problems.targets import check_mixture, check_target_range, class_weights, measured_splits
from nnlo_lib.train.replica.model_build import model_output_size
from nnlo_lib.train.replica.resident_samples import ResidentAugment, ResidentMixture, ResidentSamples
from nnlo_lib.train.task import Task


class TrainingData:
    """Samples of a training and their assignment to workers."""

    def __init__(self, task: Task, workers: int, job: StagingJob | None = None) -> None:
        self._task, self._workers, data = task, workers, task.run.data
        self.manifest = DataManifest.load(task.manifest)
        # Before staging, which may copy for a long time.
        self.manifest.refuse_other_settings(data.store_settings)
        if missing := data.missing_split(self.manifest.splits):
            raise UserError(f"data.validation: {missing}")
        if "test" not in self.manifest.splits and not data.validation and task.fold is None:
            raise UserError(
                f"data.validation: {data.dataset} has no test split, and data.validation is 0, so that no "
                "samples are left to evaluate the model; set data.validation, for example 0.1"
            )
        if data.stage_to:
            self.manifest = stage_dataset(self.manifest, data.stage_to, job=job, command=data.stage_command)
        self.split = Split(self.manifest, "train")
        self._train, self._held_out = self._split_off_held_out()
        self.validation_set = self.split.weighted(self._held_out), self._held_out
        # In cross-validation, the fold is the validation set, even if the data set has a validation split.
        if not isinstance(data.validation, float) and task.fold is None:
            own = Split(self.manifest, data.validation)
            samples = np.arange(len(own))
            self.validation_set = own.weighted(samples), samples
        self.split = self.split.weighted(self._train)
        # Indices in `split`, by worker; a single array with all training samples if the workers share them.
        self.worker_samples = (
            [self._train] if data.partition.name == "iid" else self._assign_to_workers(self._train)
        )
        check_cover(len(self.split), self._held_out, self.worker_samples)

    @property
    def num_training_samples(self) -> int:
        """Number of training samples, all workers together."""
        return sum(map(len, self.worker_samples))

    @cached_property
    def normalized_manifest(self) -> DataManifest:
        """The manifest with the moments by which inputs are normalized: of the training samples alone."""
        if not self._task.normalizes_training_samples:
            return self.manifest
        store = manifest_fingerprint(self._task.manifest)
        kept = self._task.paths.state.normalization
        return with_training_moments(self.manifest, self.split, self._train, store, kept)

    @cached_property
    def outputs(self) -> int:
        """Number of model outputs (classes or targets); raises UserError if labels do not fit model, loss or metrics."""
        check_mixture(self._task.run, self.manifest.classes, self.manifest.inputs)
        outputs = model_output_size(self._task.run, self.manifest)
        if self.manifest.classes is None:
            for name in measured_splits(self._task.run, self.manifest.splits):
                labels = [self.split.labels] if name == "train" else stored_labels(self.manifest, name)
                check_target_range(self._task.run, labels, name)
        return outputs

    @cached_property
    def class_weights(self) -> Array | None:
        """Weight of each class in the loss of the training, (classes,); None without."""
        is_counted = getattr(self._task.run.problem, "class_weights", None) == "balanced"
        labels = self.split.labels[self._train] if is_counted else None
        return class_weights(self._task.run, self.manifest.class_labels, labels)

    def loader(self, worker: int, device: str | None = None) -> BatchLoader:
        """Return the batch loader of one worker, whose samples are copied to `device` if it is given."""
        sampler = self._sampling.sampler(worker)
        if device is None:
            return BatchLoader(self.split, sampler, self._augment(Augment), self._mixture(Mixture))
        # A single part belongs to all workers.
        own = self.worker_samples[worker % len(self.worker_samples)]
        samples = ResidentSamples(self.split, own, device)
        return BatchLoader(samples, sampler, self._augment(ResidentAugment), self._mixture(ResidentMixture))

    def expected(self, epoch: int) -> Array:
        """Return how often an epoch should use each sample of the split: (samples,)."""
        return self._sampling.expected_uses(len(self.split), epoch)

    def save(self) -> None:
        """Write the partition file: the held-out samples and the training samples of each worker."""
        save_partition(self._task.paths.state.partition, self._held_out, self.worker_samples)

    def _assign_to_workers(self, train: Indices) -> list[Indices]:
        """Return disjoint samples per worker; processes of one worker divide its samples at random."""
        processes = self._task.run.parallel.processes_per_worker
        scheme, seed = self._task.run.data.partition, self._task.stream_seed
        workers, options = self._workers // processes, scheme.model_dump(exclude={"name"})
        parts = assign_to_workers(train, self.split.labels, workers, scheme.name, seed, **options)
        if processes == 1:
            return parts
        shuffled_parts = (shuffled(part, seed, ShufflePurpose.PROCESSES) for part in parts)
        # Sorted like the parts of other workers: the sampler shuffles the samples in each epoch.
        return [np.sort(piece) for part in shuffled_parts for piece in np.array_split(part, processes)]

    @cached_property
    def _sampling(self) -> SamplingPlan:
        train, stream = self._task.run.train, self._task.run.data.stream
        return SamplingPlan(
            self.worker_samples, self._workers, train.batch_size, self._task.stream_seed, train.steps_per_epoch,
            train.dealing == "dynamic", self._task.run.parallel.processes_per_worker,
            (stream.window, stream.mode) if stream else None,
        )  # fmt: skip

    def _augment(self, kind: type[Augment]) -> Augment | None:
        data, augment = self._task.run.data, self._task.run.data.augment
        if not (augment.flip or augment.pad or augment.window or data.crop):
            return None
        changes = augment.flip, augment.pad, data.crop, augment.window, augment.window_probability
        return kind(*changes, self._task.stream_seed)

    def _mixture(self, kind: type[Mixture]) -> Mixture | None:
        problem = self._task.run.problem
        if not (isinstance(problem, ClassificationConfig) and (problem.mixup or problem.cutmix)):
            return None
        return kind(problem.mixup, problem.cutmix, self._task.stream_seed)

    def _split_off_held_out(self) -> tuple[Indices, Indices]:
        """Divide the training split into (training samples, held-out samples)."""
        task, data = self._task, self._task.run.data
        fraction = data.validation if isinstance(data.validation, float) else 0.0
        if data.split_by == "shard":
            sizes = [shard.samples for shard in self.manifest.splits["train"].shards]
            return split_whole_shards(sizes, fraction, task.folds, task.fold, task.seed)
        stratify = data.stratify and self.manifest.classes is not None
        labels = self.split.labels if stratify else None
        return split_train_validation(len(self.split), labels, fraction, task.folds, task.fold, task.seed)
