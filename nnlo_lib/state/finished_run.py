"""One finished task: the files in its folder, each read and checked for completeness at first access."""

import csv
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from pydantic import ValidationError

from nnlo_lib.config import Run
from nnlo_lib.config.base import BUILT_IN, RECORDED_RUN_CONTEXT, USER_CLASS
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import decoded
from nnlo_lib.state.attempts import AttemptStatistics, attempts_of_result, read_attempts

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SUMMARY_KEYS = ("run", "seed", "config", "seconds", "samples_per_second", "bytes_sent", "ranks", "epochs")
EVALUATION_KEYS = ("samples",)
HISTORY_COLUMNS = ("epoch", "seconds")
CODE_SUFFIXES = (".py", ".pt", ".pt2", ".pth", ".torch")
# The samples of an evaluation, by `split` in evaluation.json.
SPLIT_NAMES = {
    "test": "the test split",
    "validation": "the validation split",
    "held back": "the samples held back for validation",
}


@dataclass(frozen=True)
class FinishedRun:
    """A task (run with a seed, and a fold if any) that has published its outputs.

    Properties raise UserError if their file is missing, cut short or incomplete; the message names the file.
    """

    folder: Path

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json, which is published last."""
        return read_json_object(self.paths.summary, SUMMARY_KEYS)

    def recorded(self, key: str) -> Any:
        """Return a value of the summary that each training of this version records."""
        if key not in self.summary:
            raise UserError(
                f"{self.paths.summary}: written by another version of nnlo, without `{key}`; read it with that version, "
                f"{self.summary.get('code_version')}, or train again under another `name:`"
            )
        return self.summary[key]

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """Content of evaluation.json: metrics of the model on the samples of `split`."""
        return read_json_object(self.paths.evaluation, EVALUATION_KEYS)

    # Arrays by name, read at first access; empty if the training wrote none.
    predictions = cached_property(lambda run: read_arrays(run.paths.predictions, optional=True))
    # Loss and metrics of each test sample, each (samples,).
    sample_metrics = cached_property(lambda run: read_arrays(run.paths.sample_metrics, optional=True))
    # Distances of all pairs of nodes, `<kind>_<step>`, each (nodes, nodes).
    consensus = cached_property(lambda run: read_arrays(run.paths.consensus, optional=True))
    # Predictions of each node in a plane, with the plane, positions and links: `<kind>_<step>`.
    maps = cached_property(lambda run: read_arrays(run.paths.maps, optional=True))

    @cached_property
    def config(self) -> Run:
        """Configuration of the task, as recorded in the summary; UserError if it is not valid."""
        try:
            # In this context, files that the run needed may be missing by now.
            return Run.model_validate(self.summary["config"], context=RECORDED_RUN_CONTEXT)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"] if part not in (BUILT_IN, USER_CLASS))
            raise UserError(
                f"{self.paths.summary}: config: {where}: {fault['msg']}; run the command in the folder in which the task "
                f"was trained, with the nnlo version that wrote the file: {self.summary.get('code_version')}"
            ) from error

    @cached_property
    def history(self) -> "pd.DataFrame":
        """One row per epoch; raises UserError also if epochs are missing at the end."""
        frame = read_table(self.paths.history, HISTORY_COLUMNS)
        if frame.empty or frame["epoch"].iloc[-1] < self.epochs:
            raise UserError(f"{self.paths.history} ends before epoch {self.epochs}; train the task again")
        return frame

    @cached_property
    def validations(self) -> "pd.DataFrame | None":
        """One row per validation within an epoch, or None if the task made none; `epoch` counts completed epochs."""
        path = self.paths.validations
        return read_table(path, (*HISTORY_COLUMNS, "step")) if path.exists() else None

    @cached_property
    def history_text(self) -> list[dict[str, str]]:
        """One row per epoch, each value as the text in the file."""
        return list(csv.DictReader(self.paths.history.read_text().splitlines()))

    @cached_property
    def attempt_statistics(self) -> AttemptStatistics | None:
        """Statistics over the attempts of the task, or None if no attempt was recorded."""
        found = attempts_of_result(read_attempts(self.paths.state.folder))
        productive = self.training_seconds + self.summary["seconds"].get("evaluate", 0.0)
        seconds = None if self.transport == "simulated" else productive
        return AttemptStatistics(found, seconds) if found else None

    @property
    def training_seconds(self) -> float:
        """Seconds in training steps, of the clock of `history`; virtual with simulated transport."""
        return float(self.recorded("training_seconds"))

    @property
    def restarts(self) -> int:
        """Number of interruptions from which the training was resumed."""
        if statistics := self.attempt_statistics:
            return statistics.unfinished_by_reason.total()
        return int(self.summary.get("restarts", 0))

    @property
    def run(self) -> str:
        return str(self.summary["run"])

    @property
    def key(self) -> tuple[str, int, int | None]:
        """Run, seed and fold, which distinguish one task from another."""
        return self.run, self.summary["seed"], self.summary.get("fold")

    @property
    def epochs(self) -> int:
        return int(self.summary["epochs"])

    @property
    def roles(self) -> list[str]:
        """Role of each rank; all ranks are workers if the summary names no roles."""
        return self.summary.get("roles") or ["worker"] * self.summary["ranks"]

    @property
    def transport(self) -> str:
        """Transport of the messages; `simulated` means that seconds are virtual."""
        return str(self.config_section("parallel").get("transport", "mpi"))

    @property
    def has_virtual_seconds(self) -> bool:
        """Whether the seconds follow from the settings alone, and not from the hosts and their load."""
        simulation = self.config_section("parallel").get("simulation") or {}
        return self.transport == "simulated" and simulation.get("sample_seconds") != "measured"

    @property
    def messages(self) -> int | None:
        """Number of messages that all ranks sent, or None if they were not counted."""
        counts = self.summary.get("messages_sent")
        return sum(counts.values()) if counts else None

    @property
    def input_checksums(self) -> dict[str, str]:
        """SHA-256 of each user's file that the training read."""
        return dict(self.recorded("input_files"))

    @property
    def reader_checksums(self) -> dict[str, str]:
        """SHA-256 of each user's file that read or adapted the samples; earlier versions recorded none."""
        return dict(self.summary.get("data", {}).get("code", {}))

    @property
    def rank_count_changed(self) -> bool:
        """Whether the training was resumed with another number of ranks."""
        return len({segment["ranks"] for segment in self.recorded("legs")}) > 1

    def config_section(self, section: str) -> dict[str, Any]:
        """Return a section of the recorded configuration as it was written; empty if it is missing."""
        return self.summary["config"].get(section) or {}


def finished_runs(folder: Path) -> Iterator[FinishedRun]:
    """Yield the finished tasks in the folder of a run, by seed and by fold."""
    for pattern in ("seed-*", "seed-*/fold-*"):
        runs = map(FinishedRun, sorted(folder.glob(pattern)))
        # summary.json is published last: where it exists, the other outputs are complete.
        yield from (run for run in runs if run.paths.summary.exists())


def find_data_manifest(folder: Path, manifest: str) -> Path | None:
    """Return the path of the data's manifest, or None if it is not found.

    `manifest` is relative to the folder in which the training was started, a parent of the run's folder.
    """
    paths = (place / manifest for place in folder.resolve().parents)
    return next((path for path in paths if path.is_file()), None)


def code_files(run: FinishedRun) -> list[str]:
    """Return the files of the user whose code an evaluation of the run executes; it needs the user's consent."""
    return [path for path in run.config.input_files if Path(path).suffix in CODE_SUFFIXES]


def trusted(run: Run) -> Run:
    """Return the settings of a run that may load its saved network, after the user's consent."""
    return run.model_copy(update={"model": run.model.model_copy(update={"trust": True})})


def read_json_object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read a JSON object. Raises UserError if the file is missing, cut short or lacks one of `keys`."""
    try:
        content = load_json(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it contains no JSON object")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged: {error}") from error
    require(path, keys, content)
    return content


def read_table(path: Path, columns: Sequence[str]) -> "pd.DataFrame":
    """Read a CSV file. Raises UserError if the file is missing, cut short or lacks one of `columns`."""
    import pandas as pd  # imported here, because `nnlo verify` and `nnlo plan` start faster without it

    text = read_text(path)
    if not text.endswith("\n"):
        # A copy that was interrupted in the last number would otherwise be read as a complete table.
        raise UserError(f"{path} is cut short: its last line has no newline")
    # pandas would turn the run names 1 and NA into a number and a missing value.
    missing = {name: ["", "nan", "NaN"] for name in text.partition("\n")[0].split(",") if name != "run"}
    try:
        frame = pd.read_csv(StringIO(text), na_values=missing, keep_default_na=False, dtype={"run": str})
    except ValueError as error:
        raise UserError(f"{path} is not a table: {error}") from error
    require(path, columns, frame.columns)
    return frame


def read_arrays(path: Path, optional: bool = False) -> "dict[str, NDArray[Any]]":
    """Read the arrays of an NPZ file; none if it is `optional` and missing. Raises UserError if it cannot be read."""
    import numpy as np

    if optional and not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise UserError(f"{path} is cut short or damaged: {error}") from error


def read_text(path: Path) -> str:
    """Read a UTF-8 text file. Raises UserError, naming the file, if it cannot be read."""
    try:
        return decoded(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def require(path: Path, wanted: Sequence[str], present: Container[str]) -> None:
    """Raise UserError, naming the file, if one of the wanted keys or columns is not present in it."""
    if missing := [name for name in wanted if name not in present]:
        raise UserError(f"{path} is cut short or damaged: {path.name} lacks {', '.join(missing)}")
