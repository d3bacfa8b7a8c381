"""Check that the source of the data and its files exist."""

from collections.abc import Mapping
from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import store_of
from nnlo_lib.config.reader import ArraysReaderConfig, TFRecordReaderConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG, DatasetSpec
from nnlo_lib.data.fetch.archive import ARCHIVE_SUFFIXES, is_archive
from nnlo_lib.data.fetch.gzip_content import find_plain_or_gzip
from nnlo_lib.data.identity.source_identity import read_contents
from nnlo_lib.preflight.mistake import Mistakes, distinct_runs


def check_sources(experiment: Experiment, runs: Mapping[str, Run]) -> list[Mistakes]:
    """Return the mistakes in the sources of the data that are not converted yet."""
    found = []
    for name, run in distinct_runs(
        runs, lambda run: run.data.model_dump_json(include={"dataset", "source", "reader"})
    ):
        mistakes = Mistakes(experiment, name)
        # After the conversion, the source files may be removed.
        if not _is_converted(run):
            with mistakes.collected("data", "source"):
                _check(run.data)
        found.append(mistakes)
    return found


def _is_converted(run: Run) -> bool:
    try:
        return store_of(run, leads=True).manifest.exists()
    except UserError:  # `_check` finds the reason
        return False


def _check(data: DataConfig) -> None:
    """Raise UserError if the source is missing or lacks files; URLs and the contents of archives are not checked."""
    known = CATALOG.get(data.dataset)
    if data.source is None:
        if known and not known.has_fixed_source:
            raise UserError(
                f"required, because {known.name} has no download address; set the folder of the files ({known.hint})"
            )
        return
    if "://" in data.source:
        return
    path = Path(data.source).expanduser()
    if not path.exists():
        raise UserError(
            f"no such file or folder: {data.source}; paths are relative to the working directory of nnlo"
        )
    if not path.is_dir():
        _check_file(path, known)
    elif known and known.files:
        _check_official(path, known)
    else:
        _check_folder(path, data)


def _check_file(path: Path, known: DatasetSpec | None) -> None:
    # A file of the catalog may have any name.
    if not is_archive(path.name) and not (known and known.files):
        raise UserError(f"{path} is neither a folder nor an archive ({' '.join(ARCHIVE_SUFFIXES)})")


def _check_official(folder: Path, known: DatasetSpec) -> None:
    names = [file.name for file in (*known.files, *([known.instead] if known.instead else []))]
    if not any(find_plain_or_gzip(folder, name) for name in names):
        raise UserError(f"{folder} has none of the files of {known.name}: {', '.join(names)}")


def _check_folder(folder: Path, data: DataConfig) -> None:
    if isinstance(data.reader, ArraysReaderConfig):
        _check_arrays(folder, data)
    elif isinstance(data.reader, TFRecordReaderConfig) or data.dataset == "imagenet":
        read_contents(data.store_settings, folder)


def _check_arrays(folder: Path, data: DataConfig) -> None:
    """Read the headers of all array files, as the conversion does."""
    try:
        read_contents(data.store_settings, folder)
    except UserError as error:
        raise UserError(f"data.reader: {str(error).removeprefix('data.reader: ')}") from error
