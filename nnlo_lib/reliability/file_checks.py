"""`nnlo verify`: the files of finished runs against their checksums, and the samples that the trainings used.

Imports no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest, checkpoint_folders
from nnlo_lib.core.atomic_file import CHECKSUM_KEY, content_checksum, file_sha256, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.loading.sampler import SamplingPlan
from nnlo_lib.data.partition import check_cover, load_partition
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.reliability.findings import (
    Finding,
    failed,
    find_run_folders,
    load_finished_run,
    note,
    ok,
    reason_not_finished,
)
from nnlo_lib.reliability.reproduce import check_reproducibility
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest
from nnlo_lib.state.published_results import copy_of, has_copy
from nnlo_lib.state.training_records import counts_sha256


def verify_runs(folders: Sequence[str], shards: bool) -> int:
    """Check all jobs in `folders` and print a line per finding; return 1 if a check failed, else 0.

    Raises:
        UserError: after all checks, if jobs are not finished or their summary is damaged.
    """
    jobs = [job for folder in folders for job in find_run_folders(Path(folder))]
    unfinished, any_failed = [], False
    for folder in jobs:
        try:
            reason = reason_not_finished(folder)
            findings = [note(reason)] if reason else list(_run_checks(load_finished_run(folder), shards))
        except UserError as error:
            # One unfinished job must not hide the findings of the others.
            unfinished.append(str(error))
            continue
        print(folder, *findings, sep="\n", flush=True)
        any_failed |= any(finding.status == "FAILED" for finding in findings)
    if unfinished:
        raise UserError("\n  ".join(unfinished))
    return int(any_failed)


def _run_checks(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Yield the findings of all checks of a run; if `shards`, verify every shard of the data too."""
    yield from check_outputs(run)
    yield from check_evaluation(run)
    yield from check_checkpoints(run)
    yield from check_code(run)
    yield from check_sample_ledger(run)
    yield from check_dataset(run, shards)
    yield from check_attempts(run)
    yield from check_reproducibility(run)


def check_outputs(run: FinishedRun) -> Iterator[Finding]:
    """Compare the summary with its own checksum, and the published outputs with the checksums in the summary."""
    yield from _content_faults(run.paths.summary, run.summary)
    expected = run.summary.get("outputs")
    if not expected:
        yield failed("summary.json has no checksums of the outputs; an older version of nnlo wrote it")
        return
    faults = list(checksum_faults(run.folder, expected))
    yield from (failed(f"output {fault}") for fault in faults)
    if not faults:
        yield ok(f"{len(expected)} outputs match their checksums in summary.json")


def check_evaluation(run: FinishedRun) -> Iterator[Finding]:
    """Compare the evaluation with its own checksum, and with the checksums of the model and of its outputs in it."""
    path, model = run.paths.evaluation, run.paths.model
    if not path.exists():
        yield note(f"{path.name} is missing: the model was not evaluated after the training")
        return
    try:
        content = run.evaluation
    except UserError as error:
        yield failed(f"{error}; evaluate the model again")
        return
    faults = checksum_faults(run.folder, content.get("outputs", {}))
    findings = [*_content_faults(path, content), *map(failed, faults)]
    # check_outputs reports a missing model.
    if model.is_file() and file_sha256(model) != content.get("model_sha256"):
        findings.append(failed(f"{path.name} belongs to another {model.name}; evaluate the model again"))
    yield from findings or [ok(f"{path.name} matches its checksums and belongs to {model.name}")]


def _content_faults(path: Path, content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the finding that a JSON file differs from the checksum of its content that it holds."""
    if content.get(CHECKSUM_KEY) != content_checksum(content):
        yield failed(f"{path.name} was modified: its content differs from its {CHECKSUM_KEY}")


def checksum_faults(folder: Path, checksums: Mapping[str, str]) -> Iterator[str]:
    """Yield the fault of each file in a folder that is missing or differs from its SHA-256."""
    for name, checksum in checksums.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif file_sha256(path) != checksum:
            yield f"{name} is damaged or was modified: its checksum differs"


def check_checkpoints(run: FinishedRun) -> Iterator[Finding]:
    """Compare the files of each checkpoint with the checksums in its manifest."""
    folders = checkpoint_folders(run.paths.state.checkpoints)
    intact = 0
    for folder in folders:
        try:
            fault = "; ".join(checksum_faults(folder, CheckpointManifest.read(folder).sha256))
        except (UserError, OSError, ValueError) as error:
            fault = f"its manifest cannot be read ({error})"
        if fault:
            yield failed(f"checkpoint {folder.name}: {fault}; a resumed training will skip it")
        intact += not fault
    if intact:
        yield ok(f"{intact} of {len(folders)} checkpoints in state/checkpoints are intact")
    if not folders:
        yield note("state/checkpoints contains no checkpoints")


def check_code(run: FinishedRun) -> Iterator[Finding]:
    """Compare the copies of the user's code with the summary; note files of the project that differ now."""
    code = run.paths.code
    # Of a reader that was edited after the conversion, no copy is kept.
    reader = {path: each for path, each in run.reader_checksums.items() if copy_of(code, path).is_file()}
    copies = {path: each for path, each in (reader | run.input_checksums).items() if has_copy(path)}
    expected = {f"{code.name}/{path.lstrip('/')}": checksum for path, checksum in copies.items()}
    faults = list(checksum_faults(run.folder, expected))
    yield from (failed(f"code: {fault}") for fault in faults)
    if copies and not faults:
        yield ok(f"code: {', '.join(copies)}: the copies in code/ match their checksums in summary.json")
    for path, checksum in run.input_checksums.items():
        # The file in the project may be edited or moved after the training, or belong to another project.
        if Path(path).is_file() and file_sha256(Path(path)) != checksum:
            yield note(
                f"code: {path} differs from the file that this training used; train again to use the present file"
            )


def check_sample_ledger(run: FinishedRun) -> Iterator[Finding]:
    """Compare the sample counts of the training with the uses required by partition.npz and configuration."""
    try:
        rows = _read_ledger(run.paths.state.ledger, run.epochs)
        faults = list(_ledger_faults(run, rows))
    except (OSError, UserError, ValueError, KeyError) as error:
        yield failed(f"ledger: the used samples cannot be verified: {error}")
        return
    yield from (failed(f"ledger: {fault}") for fault in faults)
    if not faults:
        complete = [row for row in rows if not row.get("cut")]
        if complete:
            epochs = f"each of {len(complete)} epochs" if len(complete) > 1 else "the epoch"
            yield ok(
                f"ledger: {epochs} used each of its {complete[0]['samples']:,} samples exactly once, over all attempts"
            )
        # Only the last epoch of a training can be cut, so that cut rows come after complete ones.
        why = (
            "had ranks that rested" if run.config.algorithm.some_ranks_rest else "ended before its last step"
        )
        for row in rows[len(complete) :]:
            yield ok(
                f"ledger: epoch {row['epoch']} {why}: it used {plural(row['samples'], 'sample')}, each once"
            )
    if _epochs_may_mix_rank_counts(run):
        yield note(
            "ledger: not compared with partition.npz: the number of ranks changed, and with train.steps_per_epoch "
            "the samples of an epoch depend on this number"
        )


def _read_ledger(path: Path, epochs: int) -> list[dict[str, Any]]:
    """Return the rows of the ledger. Raises ValueError unless it has one for each epoch, in order."""
    try:
        rows = [load_json(line) for line in path.read_text().splitlines()]
        found = [row["epoch"] for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    for number, (epoch, expected) in enumerate(zip_longest(found, range(1, epochs + 1)), 1):
        if epoch != expected:
            what = "missing" if epoch is None else f"of epoch {epoch}"
            raise ValueError(f"{path}: line {number} is {what}; {plural(epochs, 'epoch')} were trained")
    return rows


def _ledger_faults(run: FinishedRun, rows: list[dict[str, Any]]) -> Iterator[str]:
    validation, parts = load_partition(run.paths.partition)
    # Samples of the validation split count as well: the training must not use them.
    samples = len(validation) + sum(map(len, parts))
    check_cover(samples, validation, parts)
    train, stream = run.config.train, run.config.data.stream
    plan = SamplingPlan(
        parts, run.summary["roles"].count("worker"), train.batch_size, run.summary["seed"], train.steps_per_epoch,
        train.dealing == "dynamic", run.config.parallel.processes_per_worker, (stream.window, stream.mode) if stream else None,
    )  # fmt: skip
    for row in rows:
        if row["missed"] or row["repeated"]:
            yield (
                f"epoch {row['epoch']} used {plural(row['missed'], 'sample')} too few times and {plural(row['repeated'], 'sample')} "
                f"too many times, such as {', '.join(map(str, row['examples']))}"
            )
            continue
        if _epochs_may_mix_rank_counts(run) or row.get("cut"):
            continue
        # The file numbers epochs from 1, the plan from 0.
        uses = plan.expected_uses(samples, row["epoch"] - 1)
        if row["sha256"] != counts_sha256(uses) or row["samples"] != uses.sum():
            yield f"epoch {row['epoch']} did not use the samples that partition.npz and the configuration require"


def _epochs_may_mix_rank_counts(run: FinishedRun) -> bool:
    """Return True if the ranks may have changed within an epoch whose samples depend on their number."""
    return run.config.train.steps_per_epoch is not None and run.rank_count_changed


def check_dataset(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Compare the data's manifest with its checksum in the summary; if `shards`, verify every shard too."""
    recorded = run.summary.get("data")
    if not recorded:
        yield failed("summary.json does not record the training data; an older version of nnlo wrote it")
        return
    path = find_data_manifest(run.folder, recorded["manifest"])
    # The data may have been moved or deleted since, which does not affect the result of the training.
    if path is None:
        yield note(
            f"the manifest of the training data, {recorded['manifest']}, was not found; the data were not compared"
        )
    elif file_sha256(path) != recorded["sha256"]:
        yield failed(
            f"{path} is not the manifest of the training data: the data were converted again, or the file was modified"
        )
    else:
        yield ok(f"{path} is the manifest of the training data")
        if shards:
            try:
                DataManifest.load(path).verify()
                yield ok("every shard of the data matches its checksum")
            except UserError as error:
                yield failed(str(error))


def check_attempts(run: FinishedRun) -> Iterator[Finding]:
    """Report the attempts, the repeated steps and the effective training time ratio."""
    statistics = run.attempt_statistics
    if statistics is None:
        yield note("attempts: state/attempts.jsonl records none")
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in statistics.count_by_reason.items())
    text = f"{len(statistics.attempts)} ({reasons}); repeated steps: {statistics.lost_steps:,}"
    if (ratio := statistics.effective_time_ratio) is not None:
        text += (
            f"; effective training time ratio {100 * ratio:.1f} % of {statistics.total_seconds:,.1f} s; the rest was "
            "spent on start-up, checkpoints and repeated steps"
        )
    yield note(f"attempts: {text}")
