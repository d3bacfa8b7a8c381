"""Mean and deviation of the inputs over the training samples of one training, without its held-out samples.

Files of the training and of the node keep them, which saves reading the samples again.
"""

import hashlib
import json
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
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


def with_training_moments(
    manifest: DataManifest, split: Split, train: Indices, store: str, kept: Path
) -> DataManifest:
    """Return the manifest with the moments of the training samples of the data set with the fingerprint `store`.

    One process of a node reads the samples, once for all trainings of the node with the same samples. A training
    that starts again, on any node, finds the moments in its own file `kept`.
    """
    key = hashlib.sha256(store.encode() + train.tobytes()).hexdigest()
    found = _read(kept, key)
    if found is None:
        with ExitStack() as stack:
            paths = [kept]
            # Without the file of the node, each process reads the samples.
            with suppress(OSError, UserError):
                shared = private_folder(Path(tempfile.gettempdir())) / "normalization" / f"{key[:32]}.json"
                lock, doing = shared.with_suffix(".lock"), "reading the training samples"
                stack.enter_context(exclusive_lock(lock, doing, MOMENTS_TIMEOUT_S))
                paths.append(shared)
            found = next((moments for path in paths if (moments := _read(path, key)) is not None), None)
            if found is None:
                for path in (path for path in paths if path.exists()):
                    logger.info(f"{path}: damaged, or of other samples; the training samples are read again")
                found = _computed(split, train)
            text = json.dumps(with_checksum({"samples": key, "moments": found}))
            for path in paths:
                # A full disk or a missing permission is no error: the file only saves time.
                with suppress(UserError):
                    if _read(path, key) != found:
                        with atomic_write(path) as part:
                            part.write_text(text)
    return with_moments(manifest, found)


def _read(path: Path, samples: str) -> Moments | None:
    """Return the moments in a file; None if it is missing, damaged or of other samples."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = load_json(path.read_text())
        if content[CHECKSUM_KEY] == content_checksum(content) and content["samples"] == samples:
            found: Moments = content["moments"]
            return found
    return None


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
