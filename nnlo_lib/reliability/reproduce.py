"""Reproduction of a finished training: the reasons why a repetition may differ, and the files from which it is repeated.

Imports no torch.
"""

import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from nnlo_lib.config.algorithm import UserAlgorithmConfig
from nnlo_lib.config.base import NAME_PATTERN, non_defaults
from nnlo_lib.config.model import CODE_REFERENCE, input_files
from nnlo_lib.config.paths import RESULTS_FOLDER, RunPaths
from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import MASK, mask_settings
from nnlo_lib.reliability.findings import Finding, failed, load_finished_run, note, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_results import copy_of, has_copy

EXPERIMENT_FILE = "experiment.yaml"


def check_reproducibility(run: FinishedRun) -> Iterator[Finding]:
    """Check the hash of the configuration, and note every reason why the run is not reproducible."""
    # The hash of earlier versions was of the secrets, too.
    has_secrets = mask_settings(run.summary["config"]) != run.summary["config"]
    if run.config.hash != run.summary["config_hash"] and not has_secrets:
        yield failed("the configuration in summary.json was modified: its hash differs from config_hash")
    reasons = list(_reasons(run))
    yield from (note(f"not reproducible bit for bit: {reason}") for reason in reasons)
    if not reasons:
        kept = f" and {run.paths.code.name}/" if run.input_checksums else ""
        yield ok(f"reproducible bit for bit from summary.json{kept}, with code {run.summary['code_version']}")
    if differing := list(_differing_packages(run.summary["packages"])):
        yield note(
            f"to reproduce it, install the packages in summary.json; these differ: {'; '.join(differing)}"
        )


def _reasons(run: FinishedRun) -> Iterator[str]:
    """Yield the reasons why a repetition may differ: code, chance, the machine, files of the user, changes and pauses."""
    # In a git checkout, a code version is `<version> (<commit>)`, with `+` after the commit if files were modified.
    code = str(run.summary["code_version"])
    if not code.endswith(")"):
        yield f"its code version {code} contains no commit"
    elif code.endswith("+)"):
        yield f"its code had uncommitted changes ({code})"
    parallel, algorithm = run.config.parallel, run.config.algorithm
    virtual = parallel.transport == "simulated"
    if not virtual and isinstance(algorithm, UserAlgorithmConfig):
        yield f"the ranks of {algorithm.name} may not wait for each other: no check runs the user's files to know it"
    elif not virtual and algorithm.is_asynchronous:
        yield f"the ranks of {algorithm.name} do not wait for each other: the order of their messages is random"
    if not virtual and not algorithm.sums_in_rank_order:
        yield "`algorithm.reduction: fastest` lets MPI choose the order in which gradients are added"
    if virtual and parallel.simulation.sample_seconds == "measured":
        yield "`parallel.simulation.sample_seconds: measured` makes the training depend on the speed of the machine"
    if parallel.gpus_per_rank:
        yield "it was trained on GPUs, which may add numbers in a different order each time"
    for path in input_files(run.config_section("data").get("reader")):
        if path not in run.reader_checksums or not copy_of(run.paths.code, path).is_file():
            yield f"it needs {path}, the reader of the data, of which no copy is kept with the run"
    for path in {**dict.fromkeys(run.config.input_files), **run.input_checksums}:
        if path not in run.input_checksums or not has_copy(path):
            missing = "" if Path(path).is_file() else " and which was not found"
            yield f"it needs {path}, of which no copy is kept with the run{missing}"
    # Simulated ranks that leave and return by the settings are repeated with them.
    planned = [ranks for ranks, _ in groupby(map(parallel.ranks_in, range(1, run.epochs + 1)))]
    for key, what in (("ranks", "number of ranks"), ("code", "code")):
        segments = [(segment[key], segment["step"]) for segment in run.recorded("legs")]
        changes = [value for value, _ in segments]
        if len({*changes}) > 1 and not (key == "ranks" and changes == planned):
            yield f"its {what} changed ({', '.join(f'{value} from step {step:,}' for value, step in segments)})"
    paused = run.summary.get("paused_within_epoch")
    if paused is None and virtual and run.restarts > 0:
        # Summaries of older versions do not say where a training paused, and a resumed one had other clocks. The training
        # asked the algorithm of a user whether its ranks wait; here, its file is not run.
        paused = isinstance(algorithm, UserAlgorithmConfig) or algorithm.is_asynchronous
    if paused:
        yield (
            f"it was stopped and resumed within an epoch, which changes the messages in flight between the ranks of {algorithm.name}"
        )


def _differing_packages(packages: dict[str, str]) -> Iterator[str]:
    for name, recorded in packages.items():
        try:
            current = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            current = "not installed"
        if current != recorded:
            yield f"{name} is {current} (summary.json: {recorded})"


def write_reproduction(folder: Path, target: Path) -> str:
    """Write the experiment file and the user's files of a finished training; return what to do with them.

    Raises:
        UserError: if the training is not finished or is a trial of a search, if a file of the user is missing or
            differs from the one that was used, or if `target` has an experiment file.
    """
    run = load_finished_run(folder)
    if not re.fullmatch(NAME_PATTERN, run.run):
        raise UserError(
            f"{folder}: a trial of a search; `nnlo search` repeats trials, with the same decisions"
        )
    file = target / EXPERIMENT_FILE
    if file.exists():
        raise UserError(f"{file}: the file exists; choose another folder")
    project = _project_folder(folder)
    for path, source in _sources(run, project).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target / path)
    with atomic_write(file) as part:
        part.write_text(yaml.safe_dump(_settings(run, project), sort_keys=False), encoding="utf-8")
    # The reasons why the repeated training may differ, and packages that differ.
    reservations = (
        f"{each.status}: {each.message}" for each in check_reproducibility(run) if each.status != "ok"
    )
    return "\n".join([*_instructions(run, target), *reservations])


def _project_folder(folder: Path) -> Path:
    """Return the folder in which the training was started, which contains results/."""
    above = folder.absolute().parents
    return next((each.parent for each in above if each.name == RESULTS_FOLDER.name), Path.cwd())


def _sources(run: FinishedRun, project: Path) -> dict[str, Path]:
    """Return the file to copy for each of the user's files, by its path in the new folder, after a check of its SHA-256."""
    sources = {}
    for path, checksum in {**run.reader_checksums, **run.input_checksums}.items():
        kept = copy_of(run.paths.code, path)
        source = sources[path.lstrip("/")] = kept if kept.is_file() else project / path
        if not source.is_file():
            raise UserError(f"{source}: not found; the training used this file, with SHA-256 {checksum}")
        if file_sha256(source) != checksum:
            raise UserError(f"{source}: not the file that the training used, which has SHA-256 {checksum}")
    # Of readers, earlier versions recorded no checksum.
    for path in input_files(run.summary["config"]["data"].get("reader")):
        sources.setdefault(path.lstrip("/"), project / path)
    return sources


def _settings(run: FinishedRun, project: Path) -> dict[str, Any]:
    """Return the keys of the experiment file, with the paths that the files have in the new folder."""
    config = mask_settings(_with_new_paths(non_defaults(run.config), run, project))
    source = config.get("data", {}).get("source")
    if source and (project / source).exists():
        config["data"]["source"] = str((project / source).absolute())
    folds = 1 if run.summary.get("fold") is None else int(run.recorded("folds"))
    named = {"name": run.summary["experiment"], "seeds": [run.summary["seed"]], "folds": folds}
    return {**named, "runs": {run.run: {}}, **config}


def _with_new_paths(value: Any, run: FinishedRun, project: Path) -> Any:
    """Return settings in which files outside of the project have the path of their copy in the new folder."""
    if isinstance(value, Mapping):
        return {key: _with_new_paths(each, run, project) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_new_paths(each, run, project) for each in value]
    if not isinstance(value, str):
        return value
    code = CODE_REFERENCE.fullmatch(value)
    path, start = (code[1], code.start(1)) if code else (value, 0)
    full = Path(os.path.normpath(project.absolute() / path))
    # Summaries record a path relative to the project if it is below the project.
    recorded = str(full.relative_to(project.absolute()) if full.is_relative_to(project.absolute()) else full)
    is_copied = recorded in run.input_checksums or recorded in run.reader_checksums
    return value[:start] + recorded.lstrip("/") + value[start + len(path) :] if is_copied else value


def _instructions(run: FinishedRun, target: Path) -> Iterator[str]:
    fold = "" if run.summary.get("fold") is None else f" --fold {run.summary['fold']}"
    job = RunPaths(Path(*run.folder.absolute().parts[len(_project_folder(run.folder).parts) :]))
    checksum = run.summary["outputs"][run.paths.model.name]
    yield f"wrote {target / EXPERIMENT_FILE}; to repeat the training:"
    yield f"  cd {shlex.quote(str(target))} && nnlo run {EXPERIMENT_FILE}{fold}"
    if MASK in str(mask_settings(run.summary["config"])):
        yield f"secrets are not stored: replace each {MASK} in the file, at best by ${{VARIABLE}}"
    yield f"data: {run.summary.get('data', {}).get('manifest', run.config.data.dataset)}, converted again if it is missing"
    yield f"expected SHA-256 of {job.model}: {checksum}"
