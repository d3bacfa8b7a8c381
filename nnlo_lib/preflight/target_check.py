"""Check of the targets in the store: losses of probabilities need targets from 0 to 1."""

from collections.abc import Iterator
from itertools import islice

from nnlo_lib.config import Run
from nnlo_lib.data.readers import Array
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import stored_labels
from nnlo_lib.preflight.mistake import Mistakes
from nnlo_lib.preflight.sample_count_check import MAX_LABEL_SHARDS
from nnlo_lib.problems.target_range import check_target_range, measured_splits

MAX_TARGETS = 20_000_000  # numbers of a split, which are read within a second; a training checks all of them


def check_targets(run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Add the mistake of each split whose targets do not fit the loss or the metrics of the run.

    Args:
        run: the run.
        manifest: manifest of the run's data; without shards if the data are not converted.
        mistakes: list to which mistakes are added.
    """
    if manifest.classes is None:
        for split in measured_splits(run, manifest.splits):
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
