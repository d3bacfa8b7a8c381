"""Text description of a store and of the samples of each worker."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nnlo_lib.core.text_format import size_text
from nnlo_lib.data.inspect.class_counts import range_summary, samples_by_class, samples_by_worker
from nnlo_lib.data.readers import Array, Indices
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, Shard
from nnlo_lib.data.store.split import Split

CHANNELS = 4  # maximum number of channels for which each mean and deviation is listed
LISTED = 4  # maximum number of shards with corrupt records or non-finite values that are listed


def describe(manifest: DataManifest, partitions: Mapping[str, Sequence[Indices]]) -> str:
    """Return a description of a data set: its files, its arrays, and tables of its samples.

    Samples are counted per class and split, and per worker and class. `partitions` maps the name of a run to
    the training samples of each worker; all workers share a single part. Raises UserError if a shard is
    unreadable.
    """
    labels = {name: Split(manifest, name).labels for name in manifest.splits}
    paragraphs = ["\n".join(_facts(manifest)), _labels(manifest, labels)]
    paragraphs += [_workers(manifest, run, parts, labels["train"]) for run, parts in partitions.items()]
    return "\n\n".join(paragraphs)


def _facts(manifest: DataManifest) -> Iterator[str]:
    shards = [shard for part in manifest.splits.values() for shard in part.shards]
    size = size_text(sum(shard.bytes for shard in shards))
    several = "s" if len(shards) > 1 else ""
    splits = ", ".join(f"{name} {part.samples:,}" for name, part in manifest.splits.items())
    yield f"data set  {manifest.dataset}"
    yield f"samples   {splits}"
    yield f"store     {manifest.folder}: {manifest.format}, {size} in {len(shards):,} shard{several}"
    for column in manifest.inputs:
        yield f"input     {_column(column)}{_moments(column, manifest.scale)}"
    classes = "" if manifest.classes is None else f", {manifest.classes:,} classes"
    yield f"labels    {_column(manifest.labels)}{classes}"
    for note in manifest.notes:
        yield f"note      {note}"
    if skipped := _counts(shards, [shard.skipped for shard in shards]):
        yield f"skipped   corrupt records: {skipped}"
    if non_finite := _counts(shards, [shard.non_finite for shard in shards]):
        yield f"values    NaN or infinite: {non_finite}"


def _counts(shards: Sequence[Shard], counts: Sequence[int]) -> str:
    """Return the counts that are not 0, with the names of their shards."""
    found = [f"{count:,} in {shard.file}" for shard, count in zip(shards, counts, strict=True) if count]
    more = f" and {len(found) - LISTED:,} more shards" if len(found) > LISTED else ""
    return ", ".join(found[:LISTED]) + more


def _column(column: ArraySpec) -> str:
    shape = " x ".join(str(length) for length in column.shape) or "one number"
    return f"{column.name}: {shape}, {column.dtype}"


def _moments(column: ArraySpec, scale: float) -> str:
    """Return mean and standard deviation of each channel, for the values after `normalize: unit`."""
    factor = scale if column.dtype == "uint8" else 1.0
    statistics = [
        f"{label} " + (" ".join(values) if len(values) <= CHANNELS else f"{values[0]} ... {values[-1]}")
        for label, moments in (("mean", column.mean), ("deviation", column.std))
        if (values := [f"{moment * factor:.4g}" for moment in moments])
    ]
    unit = f" (in 0..1: bytes / {1 / scale:.4g})" if statistics and factor != 1 else ""
    return ", ".join(["", *statistics]) + unit


def _labels(manifest: DataManifest, labels: Mapping[str, Array]) -> str:
    """Return the number of samples per class and split, or range and mean of labels that are not classes."""
    if manifest.classes is not None:
        return samples_by_class(manifest, labels)
    return "\n".join(
        f"labels of {name}: {each.min():.4g} to {each.max():.4g}, mean {each.mean():.4g}"
        for name, each in labels.items()
    )


def _workers(manifest: DataManifest, run: str, parts: Sequence[Indices], labels: Array) -> str:
    """Return the number of samples of each worker in a run, or a note that all workers share one order.

    Args:
        manifest: the data set.
        run: name of the run.
        parts: training samples of each worker; a single part is shared by all workers.
        labels: labels of the training split.
    """
    samples = np.array([len(part) for part in parts])
    held = len(labels) - samples.sum()
    head = f"run {run}: {samples.sum():,} training samples, {held:,} validation samples; "
    if len(parts) == 1:
        return (
            head + "all workers share one order of the training samples, which is shuffled again each epoch"
        )
    table = [] if manifest.classes is None else [samples_by_worker(manifest, parts, labels)]
    summary = f"{head}each of {len(parts):,} workers has its own"
    return "\n".join([summary, *table, range_summary("samples per worker", samples)])
