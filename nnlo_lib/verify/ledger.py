"""Whether each epoch used each sample that it should exactly once, over all attempts."""

from collections.abc import Iterator

from nnlo_lib.data.partition_file import check_cover, load
from nnlo_lib.data.sampling import Sampling
from nnlo_lib.errors import UserError
from nnlo_lib.state.ledger import digest
from nnlo_lib.verify.epochs import EpochsError, Row, rows_of
from nnlo_lib.verify.finding import Finding, failed, note, ok
from nnlo_lib.verify.finished import Finished


def ledger(run: Finished) -> Iterator[Finding]:
    """Compare what was counted while training with what partition.npz and the configuration ask for."""
    try:
        faults = list(_faults(run, rows := rows_of(run, "ledger")))
    except (EpochsError, UserError, ValueError, KeyError) as error:
        yield failed(f"ledger: nothing proves which samples were used: {error}")
        return
    yield from (failed(f"ledger: {fault}") for fault in faults)
    if not faults:
        whole = [row for row in rows if not row.get("cut")]
        if whole:
            uses = f"{whole[0]['samples']:,} samples"
            yield ok(
                f"ledger: each of {len(whole)} epochs used each of its {uses} exactly once, over all attempts"
            )
        for row in rows[len(whole) :]:
            uses = f"{row['samples']:,} samples"
            yield ok(f"ledger: epoch {row['epoch']} was cut short: it used {uses}, each once")
    if _is_out_of_scope(run):
        yield note(
            "ledger: not computed again from partition.npz: the number of ranks changed, and with "
            "train.steps_per_epoch the samples of an epoch depend on it"
        )


def _faults(run: Finished, rows: list[Row]) -> Iterator[str]:
    walk, samples = _walk(run)
    for row in rows:
        if row["missed"] or row["repeated"]:
            yield (
                f"epoch {row['epoch']} missed {row['missed']} samples and used {row['repeated']} that it should not "
                f"have used, or not again, such as {', '.join(map(str, row['examples']))}"
            )
        elif not (_is_out_of_scope(run) or row.get("cut")) and row["sha256"] != digest(
            walk.expected(samples, row["epoch"] - 1)
        ):
            yield f"epoch {row['epoch']} did not use what partition.npz and the configuration ask for"


def _walk(run: Finished) -> tuple[Sampling, int]:
    """Return how the samples were to be walked over, and how many there are. Raises UserError or ValueError."""
    validation, parts = load(run.folder / "partition.npz")
    samples = len(validation) + sum(map(len, parts))
    check_cover(samples, validation, parts)
    train, workers = run.run.train, run.summary["roles"].count("worker")
    dynamic = train.dealing == "dynamic"
    walk = Sampling(parts, workers, train.batch_size, run.summary["seed"], train.steps_per_epoch, dynamic)
    return walk, samples


def _is_out_of_scope(run: Finished) -> bool:
    """Say whether an epoch may have begun with some number of workers, and ended with another."""
    return run.run.train.steps_per_epoch is not None and run.resized
