"""One split of a converted data set, read in place from memory-mapped shards."""

import numpy as np
import numpy.typing as npt

from nnlo_lib.data.manifest import Manifest, Shard
from nnlo_lib.data.readers import Features, Labels, Piece
from nnlo_lib.data.shard import UNREADABLE, map_shard

Indices = npt.NDArray[np.int64]


class Split:
    """Samples 0..len-1 of a split; only the pages asked for are read, and ranks on a node share them.

    `shape` is that of a sample, `labels` are all labels. Raises UserError naming a shard that is unreadable.
    """

    def __init__(self, manifest: Manifest, name: str) -> None:
        shards = manifest.splits[name].shards
        pieces = [_open(manifest, shard) for shard in shards]
        self.shape = manifest.shape
        self.labels: Labels = np.concatenate([labels for _, labels in pieces])
        self._features = [features for features, _ in pieces]
        self._ends = np.cumsum([shard.samples for shard in shards])
        self._starts = self._ends - [shard.samples for shard in shards]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices, out: Features | None = None) -> Piece:
        """Gather features (len(indices), *shape), into `out` if given, and labels (len(indices),).

        Raises IndexError for an index outside 0..len-1.
        """
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"samples {indices.min()}..{indices.max()} are not all in 0..{len(self) - 1}")
        features = np.empty((len(indices), *self.shape), dtype=np.uint8) if out is None else out
        shards = self._ends.searchsorted(indices, side="right")
        rows = indices - self._starts[shards]
        for sample, shard, row in zip(features, shards.tolist(), rows.tolist(), strict=True):
            sample[...] = self._features[shard][row]
        return features, self.labels[indices]


def _open(manifest: Manifest, shard: Shard) -> Piece:
    path = manifest.path(shard)
    try:
        features, labels = map_shard(path)
    except UNREADABLE as error:
        raise manifest.damaged(shard, str(error)) from error
    found = [features.shape, features.dtype.name, labels.shape, labels.dtype.name]
    if found != [(shard.samples, *manifest.shape), manifest.dtype, (shard.samples,), "int64"]:
        raise manifest.damaged(shard, f"its arrays are {found}, not those of the manifest")
    return features, labels
