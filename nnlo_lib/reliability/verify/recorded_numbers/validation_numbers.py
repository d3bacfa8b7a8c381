"""Check the validation metrics of the published model in summary.json against the model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.reliability.verify.recorded_numbers.evaluation_numbers import OTHER_MACHINE
from nnlo_lib.reliability.verify.recorded_numbers.number_comparison import agree
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest
from nnlo_lib.state.trusted_run import code_files, trusted_config

PREFIX = "val_"


def check_validation(run: FinishedRun, again: bool, trust: bool) -> Iterator[Finding]:
    """Check `final.val_*` of summary.json by an evaluation of the published model on the validation samples.

    Args:
        run: the finished run.
        again: evaluate the model on the validation samples.
        trust: allow that the evaluation runs code that the run names.
    """
    recorded = _published_metrics(run.summary.get("final", {}))
    if not recorded:
        return
    if again and (trust or not code_files(run)):
        yield from _evaluate_again(run, recorded)
    elif any(f"{name}_mean" in run.summary["final"] for name in recorded):
        yield from _without_evaluation(run, recorded)


def _published_metrics(final: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation metrics of the published model, without the statistics over nodes."""
    statistics = {f"{name}_{each}" for name in final for each in ("mean", "min", "max")}
    return {
        name: value for name, value in final.items() if name.startswith(PREFIX) and name not in statistics
    }


def _evaluate_again(run: FinishedRun, recorded: Mapping[str, Any]) -> Iterator[Finding]:
    manifest = find_data_manifest(run.folder, run.summary.get("data", {}).get("manifest", ""))
    if manifest is None:
        yield note(f"summary.json: {_named(recorded)} not compared: the data were not found")
        return
    try:
        present = _metrics_of(run, manifest)
    except (UserError, KeyError, TypeError, ValueError) as error:
        yield note(f"summary.json: {_named(recorded)} not compared: {error}")
        return
    yield from _compare(recorded, present, "the model, evaluated again on the validation samples,")


def _without_evaluation(run: FinishedRun, recorded: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare with evaluation.json if the same samples were evaluated; otherwise note that nothing else holds the metrics."""
    if not run.paths.evaluation.exists() or not _is_validation_set(run):
        yield note(
            f"summary.json: {_named(recorded)} not compared: the metrics of the mean of the nodes' models do not follow "
            "from the metrics of the nodes; add --evaluate to evaluate the model on the validation samples"
        )
        return
    present = {name: run.evaluation[name] for name in map(_metric, recorded) if name in run.evaluation}
    yield from _compare(recorded, present, "evaluation.json, of the same samples,")


def _is_validation_set(run: FinishedRun) -> bool:
    split, validation = run.evaluation_split, run.config.data.validation
    if run.summary.get("fold") is not None or isinstance(validation, float):
        return split == "held back"
    return split == validation


def _compare(recorded: Mapping[str, Any], present: Mapping[str, Any], source: str) -> Iterator[Finding]:
    """Yield a finding for each metric that differs, or one for all if none differs.

    Args:
        recorded: metrics in summary.json, by name with the prefix.
        present: the same metrics from the source, by name without the prefix.
        source: the source, as text.
    """
    compared = {name: present[_metric(name)] for name in recorded if _metric(name) in present}
    differing = {
        name: value for name, value in compared.items() if not agree(recorded[name], value, OTHER_MACHINE)
    }
    for name, value in differing.items():
        yield failed(f"summary.json: final.{name} is {recorded[name]}, but {source} gives {value}")
    if compared and not differing:
        yield ok(f"summary.json: {len(compared)} validation metrics agree: {source} gives the same")


def _metric(name: str) -> str:
    return name.removeprefix(PREFIX)


def _named(recorded: Mapping[str, Any]) -> str:
    return f"{', '.join(f'final.{name}' for name in recorded)} {'were' if len(recorded) > 1 else 'was'}"


def _metrics_of(run: FinishedRun, manifest: Path) -> dict[str, float]:
    # Imported here, because the other checks start faster without torch.
    from nnlo_lib.train.evaluation.published_validation import validate_published_model

    return validate_published_model(run, trusted_config(run), DataManifest.load(manifest))
