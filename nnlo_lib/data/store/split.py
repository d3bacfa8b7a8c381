"""One split of a converted data set, read in place from memory-mapped shards."""

import errno
import resource
from collections.abc import Iterator
from copy import copy

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, Indices, Inputs
from nnlo_lib.data.store.manifest import DataManifest, Shard
from nnlo_lib.data.store.shard import map_shard

SAMPLES_PER_SHARD = 64  # of a mini-batch, from which on a loop over shards is faster than a loop over samples


class Split:
    """Samples 0..len-1 of a split; only the requested pages are read, and ranks on a node share them.

    Each shard keeps one file open for each input. Raises UserError if a shard is unreadable or the limit of
    open files is too low.

    Attributes:
        labels: all labels; classes count from 0.
        targets: labels as `take` returns them, with the weights of the samples in a `weighted` split.
    """

    def __init__(self, manifest: DataManifest, name: str) -> None:
        shards = manifest.splits[name].shards
        # A memory-mapped file counts as open. The usual limit is 1,024, and ImageNet has 1,024 shards.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        more = len(shards) * len(manifest.inputs)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft + more, hard), hard))
        opened = [_open(manifest, shard) for shard in shards]
        self.columns = manifest.inputs
        labels, *self._weights = (
            np.concatenate(parts) for parts in zip(*(own for _, own in opened), strict=True)
        )
        # Classes become (samples,) int64 from 0, whatever their stored shape.
        is_class = manifest.classes is not None
        self.labels: Array = (
            labels.reshape(-1).astype(np.int64) - manifest.first_class if is_class else labels
        )
        self.targets = self.labels
        self._inputs = list(zip(*(inputs for inputs, _ in opened), strict=True))
        self._ends = np.cumsum([shard.samples for shard in shards])
        self._starts = self._ends - [shard.samples for shard in shards]

    def __len__(self) -> int:
        return len(self.labels)

    def weighted(self, samples: Indices) -> "Split":
        """Return the split with targets label + weight * 1j, (samples,) complex128; without weights, the split itself.

        One array, so that all that moves labels moves the weights with them. The given samples have the mean weight 1: sums of
        weighted losses, divided by the number of samples, are means as scikit-learn's `sample_weight` defines them.

        Raises UserError if none of these samples has a weight above 0.
        """
        if not self._weights or not len(samples):
            return self
        mean = self._weights[0][samples].mean()
        if not mean:
            raise UserError(
                f"data.reader.weight: the {len(samples):,} samples of a training or an evaluation all have weight 0; correct the column, "
                "or remove this key"
            )
        found = copy(self)
        found.targets = self.labels + 1j * (self._weights[0] / mean)
        return found

    @property
    def sample_bytes(self) -> int:
        """Size of all inputs of one sample in bytes."""
        return sum(array.nbytes for array in self._empty(1))

    def _empty(self, count: int) -> Inputs:
        """Return uninitialized arrays for `count` samples: one array (count, *shape) for each input."""
        return tuple(np.empty((count, *column.shape), dtype=column.dtype) for column in self.columns)

    def take(self, indices: Indices) -> tuple[Inputs, Array]:
        """Return the inputs, (len(indices), *shape) each, and the targets (len(indices), ...).

        Raises IndexError if an index is outside 0..len-1.
        """
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"samples {indices.min()}..{indices.max()} are not all in 0..{len(self) - 1}")
        inputs = self._empty(len(indices))
        if len(self._inputs[0]) == 1:
            for into, (array,) in zip(inputs, self._inputs, strict=True):
                # No index needs clipping; other modes write through a copy of `into`.
                np.take(array, indices, axis=0, out=into, mode="clip")
            return inputs, self.targets[indices]
        places = self._ends.searchsorted(indices, side="right")
        rows = indices - self._starts[places]
        if len(indices) < SAMPLES_PER_SHARD * len(self._ends):
            for into, arrays in zip(inputs, self._inputs, strict=True):
                for sample, shard, row in zip(into, places.tolist(), rows.tolist(), strict=True):
                    sample[...] = arrays[shard][row]
        else:
            for shard in np.unique(places):
                here = np.flatnonzero(places == shard)
                for into, arrays in zip(inputs, self._inputs, strict=True):
                    into[here] = arrays[shard][rows[here]]
        return inputs, self.targets[indices]


def stored_labels(manifest: DataManifest, name: str) -> Iterator[Array]:
    """Yield the labels of each shard of a split as they are stored. Raises UserError if a shard is unreadable."""
    for shard in manifest.splits[name].shards:
        yield _open(manifest, shard)[1][0]


def _open(manifest: DataManifest, shard: Shard) -> tuple[Inputs, Inputs]:
    """Return the inputs of a shard; and its labels and, if there are any, weights."""
    path, columns = manifest.path(shard), (*manifest.inputs, manifest.labels, *manifest.weights)
    try:
        arrays = map_shard(path, [column.name for column in columns])
    except Exception as error:  # h5py, zipfile and numpy raise many types of exceptions for damaged files
        # Too few open files are not a damage of the shard, and converting it again would not help.
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            shards, limit = sum(len(part.shards) for part in manifest.splits.values()), resource.RLIMIT_NOFILE
            raise UserError(
                f"{manifest.folder}: {shards} shards, but the limit of open files per process is "
                f"{resource.getrlimit(limit)[0]}; raise it (ulimit -n), or convert with a larger data.shard_size"
            ) from error
        raise manifest.damaged_shard_error(shard, str(error)) from error
    # A damaged header can describe other arrays in a file of the right size.
    found = [(array.shape, array.dtype) for array in arrays]
    # Types and not their names, which are equal for both byte orders.
    if found != [((shard.samples, *column.shape), np.dtype(column.dtype)) for column in columns]:
        raise manifest.damaged_shard_error(shard, f"the arrays {found} differ from the manifest")
    # A copy of the labels, so that their mapping of the file can be closed.
    inputs = len(manifest.inputs)
    return tuple(arrays[:inputs]), tuple(array.copy() for array in arrays[inputs:])
