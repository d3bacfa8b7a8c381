"""Mean and deviation of the inputs over the training samples of one training, without its held-out samples.

Files of the training and of the node keep them, which saves reading the samples again.
"""

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nnlo_lib.core.atomic_file import CHECKSUM_KEY, atomic_write, content_checksum, load_json, with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock, private_folder
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import size_text
from nnlo_lib.data.readers.base import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.sample_statistics import CHUNK_VALUES, ChannelMoments, pooled
from nnlo_lib.data.store.split import Split

MOMENTS_TIMEOUT_S = 3600.0  # maximum wait for another process of the node that reads the samples
MOMENTS_PROGRESS_S = 5.0  # between two lines on the progress of the reading
# Mean and std of each channel, by input; empty for an input without moments.
Moments = list[dict[str, list[float]]]
logger = get_logger(__name__)


@dataclass(frozen=True)
class MomentsFile:
    """File with the moments of samples.

    Attributes:
        samples: key of the samples, by which a file of other samples is recognized.
    """

    path: Path
    samples: str

    def read(self) -> Moments | None:
        """Return the moments; None if the file is missing, damaged or of other samples."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            content = load_json(self.path.read_text())
            if content[CHECKSUM_KEY] == content_checksum(content) and content["samples"] == self.samples:
                found: Moments = content["moments"]
                return found
        return None

    def write(self, moments: Moments) -> None:
        """Write the moments, unless the file has them; a full disk or a missing permission is no error."""
        # The file only saves time.
        with suppress(UserError):
            if self.read() != moments:
                with atomic_write(self.path) as part:
                    part.write_text(json.dumps(with_checksum({"samples": self.samples, "moments": moments})))


def with_training_moments(
    manifest: DataManifest, split: Split, train: Indices, store: str, kept: Path
) -> DataManifest:
    """Return the manifest with the moments of the training samples.

    One process of a node reads the samples, once for all trainings of the node with the same samples. A training
    that starts again, on any node, finds the moments in its own file.

    Args:
        store: fingerprint of the data set.
    """
    key = hashlib.sha256(store.encode() + train.tobytes()).hexdigest()
    own = MomentsFile(kept, key)
    found = own.read()
    if found is None:
        with _node_files(key) as shared:
            files = [own, *shared]
            found = _found(files) or _computed(split, train)
            for each in files:
                each.write(found)
    return with_moments(manifest, found)


@contextmanager
def _node_files(key: str) -> Iterator[list[MomentsFile]]:
    """Yield the file of the samples `key` that the trainings of the node share, locked; no file if it cannot be used."""
    with ExitStack() as stack:
        files = []
        # Without the file, each process reads the samples.
        with suppress(OSError, UserError):
            path = private_folder(Path(tempfile.gettempdir())) / "normalization" / f"{key[:32]}.json"
            lock = exclusive_lock(
                path.with_suffix(".lock"), "reading the training samples", MOMENTS_TIMEOUT_S
            )
            stack.enter_context(lock)
            files = [MomentsFile(path, key)]
        yield files


def _found(files: list[MomentsFile]) -> Moments | None:
    """Return the moments in the first usable file; log the files that exist and are not usable."""
    found = next((moments for each in files if (moments := each.read()) is not None), None)
    if found is None:
        for path in (each.path for each in files if each.path.exists()):
            logger.info(f"{path}: damaged, or of other samples; the training samples are read again")
    return found


def _computed(split: Split, train: Indices) -> Moments:
    """Return the moments of each input, read in parts that fit into memory; log the progress of a long reading."""
    step = max(1, CHUNK_VALUES // max(1, split.sample_bytes))
    parts, logged = list[list[ChannelMoments]](), time.monotonic()
    for first in range(0, len(train), step):
        inputs, _ = split.take(train[first : first + step])
        parts.append([ChannelMoments.of(array) for array in inputs])
        if time.monotonic() - logged >= MOMENTS_PROGRESS_S:
            logged = time.monotonic()
            logger.info(
                f"data.normalize: standard: mean and deviation of the training samples: {min(first + step, len(train)):,} of "
                f"{len(train):,} samples ({size_text(len(train) * split.sample_bytes)}) are read"
            )
    whole = (pooled(each) for each in zip(*parts, strict=True))
    return [{"mean": list(each.means), "std": list(each.deviations)} for each in whole]


def with_moments(manifest: DataManifest, moments: Moments) -> DataManifest:
    """Return the manifest with other moments of its inputs, as `moments_of` returns them."""
    columns = (
        # Indices have no moments.
        replace(column, mean=tuple(each["mean"]), std=tuple(each["std"])) if column.mean else column
        for column, each in zip(manifest.inputs, moments, strict=True)
    )
    return replace(manifest, inputs=tuple(columns))


def moments_of(manifest: DataManifest) -> Moments:
    """Return the moments of the inputs of a manifest, for JSON."""
    return [{"mean": list(column.mean), "std": list(column.std)} for column in manifest.inputs]
