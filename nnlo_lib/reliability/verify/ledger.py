"""Check that each epoch used each of its samples exactly once, over all attempts."""

from collections.abc import Iterator

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.sampling_plan import SamplingPlan
from nnlo_lib.data.partition.partition_file import check_cover, load_partition
from nnlo_lib.reliability.verify.epoch_table import EpochRow, EpochTableError, read_epoch_table
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.sample_ledger import counts_sha256


def check_sample_ledger(run: FinishedRun) -> Iterator[Finding]:
    """Compare the sample counts of the training with the uses required by partition.npz and configuration."""
    try:
        faults = list(_ledger_faults(run, rows := read_epoch_table(run.paths.state.ledger, run.epochs)))
    except (EpochTableError, UserError, ValueError, KeyError) as error:
        yield failed(f"ledger: the used samples cannot be verified: {error}")
        return
    yield from (failed(f"ledger: {fault}") for fault in faults)
    if not faults:
        complete = [row for row in rows if not row.get("cut")]
        if complete:
            uses = f"{complete[0]['samples']:,} samples"
            yield ok(
                f"ledger: each of {len(complete)} epochs used each of its {uses} exactly once, over all attempts"
            )
        # Only the last epoch of a training can be cut, so that cut rows come after complete ones.
        for row in rows[len(complete) :]:
            uses = f"{row['samples']:,} samples"
            yield ok(f"ledger: epoch {row['epoch']} ended before its last step: it used {uses}, each once")
    if _epochs_may_mix_rank_counts(run):
        yield note(
            "ledger: not compared with partition.npz: the number of ranks changed, and with train.steps_per_epoch "
            "the samples of an epoch depend on this number"
        )


def _ledger_faults(run: FinishedRun, rows: list[EpochRow]) -> Iterator[str]:
    plan, samples = _expected_sampling(run)
    for row in rows:
        if row["missed"] or row["repeated"]:
            yield (
                f"epoch {row['epoch']} used {row['missed']} samples too few times and {row['repeated']} samples "
                f"too many times, such as {', '.join(map(str, row['examples']))}"
            )
            continue
        if _epochs_may_mix_rank_counts(run) or row.get("cut"):
            continue
        # The file numbers epochs from 1, the plan from 0.
        uses = plan.expected_uses(samples, row["epoch"] - 1)
        if row["sha256"] != counts_sha256(uses) or row["samples"] != uses.sum():
            yield f"epoch {row['epoch']} did not use the samples that partition.npz and the configuration require"


def _expected_sampling(run: FinishedRun) -> tuple[SamplingPlan, int]:
    """Return sampling plan and number of samples, validation included. Raises UserError or ValueError."""
    validation, parts = load_partition(run.paths.partition)
    # Samples of the validation split count as well: the training must not use them.
    samples = len(validation) + sum(map(len, parts))
    check_cover(samples, validation, parts)
    train, workers = run.config.train, run.summary["roles"].count("worker")
    dynamic = train.dealing == "dynamic"
    seed, processes = run.summary["seed"], run.config.parallel.processes_per_worker
    plan = SamplingPlan(parts, workers, train.batch_size, seed, train.steps_per_epoch, dynamic, processes)
    return plan, samples


def _epochs_may_mix_rank_counts(run: FinishedRun) -> bool:
    """Return True if the ranks may have changed within an epoch whose samples depend on their number."""
    return run.config.train.steps_per_epoch is not None and run.rank_count_changed
