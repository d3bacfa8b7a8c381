"""Bring the original files of a data set into a folder, each checked before it gets its name."""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.catalog import Dataset, File
from nnlo_lib.data.content import content_sha256, locate, variants
from nnlo_lib.errors import UserError

RECORD = "fetched.json"


def fetch(dataset: Dataset, target: Path, source: str | None = None) -> list[Path]:
    """Fill `target` with the data set's files from its mirrors, or from `source`: a folder or a base URL.

    Files already there with the right content are kept. Raises UserError if a file cannot be had or is not
    the official one by the checksum of its content; then nothing appears under its name.
    """
    base = source or _embedded(dataset)
    return [_kept(file, target) or _bring(dataset, file, target, base) for file in dataset.files]


def write_record(dataset: Dataset, paths: Sequence[Path], target: Path, source: str | None) -> Path:
    """Write `fetched.json` in `target`: source, and name, bytes and content SHA-256 of each file."""
    files = [
        {"name": path.name, "bytes": path.stat().st_size, "content_sha256": file.content_sha256}
        for file, path in zip(dataset.files, paths, strict=True)
    ]
    origin = source or dataset.embedded or list(dataset.mirrors)
    record = {"dataset": dataset.name, "source": origin, "files": files}
    with replacing(target / RECORD) as part:
        part.write_text(json.dumps(record, indent=2) + "\n")
    return target / RECORD


def _embedded(dataset: Dataset) -> str | None:
    """Find the folder inside an installed package without importing the package."""
    if dataset.embedded is None:
        return None
    package, _, folder = dataset.embedded.partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"data set {dataset.name} lies inside the package {package}, which is not installed")
    return str(Path(spec.submodule_search_locations[0]) / folder)


def _kept(file: File, target: Path) -> Path | None:
    """Return the file already in `target` if its content is right."""
    path = locate(target, file.name)
    try:
        return path if path and content_sha256(path) == file.content_sha256 else None
    except UserError:
        return None


def _bring(dataset: Dataset, file: File, target: Path, base: str | None) -> Path:
    bring = _download if base is None or "://" in base else _copy
    final = bring(dataset, file, target, base or "")
    for other in variants(file.name):
        if other != final.name:
            (target / other).unlink(missing_ok=True)
    return final


def _copy(dataset: Dataset, file: File, target: Path, folder: str) -> Path:
    found = locate(Path(folder).expanduser(), file.name)
    if found is None:
        raise UserError(f"no {file.name} in {folder} (data.source); {_wanted(dataset)}")
    final = target / found.name
    with replacing(final) as part:
        shutil.copyfile(found, part)
        _check(file, part, str(found))
    return final


def _download(dataset: Dataset, file: File, target: Path, base: str) -> Path:
    from nnlo_lib.data.download import download

    urls = [f"{each.rstrip('/')}/{file.name}" for each in ([base] if base else dataset.mirrors)]
    with replacing(target / file.name) as part:
        try:
            download(urls, part, partial(_check, file))
        except UserError as error:
            raise UserError(
                f"cannot download {file.name}; {_wanted(dataset)}: put them in a folder and set data.source "
                f"to it, or put them in {target}\n  {error}"
            ) from error
    return target / file.name


def _wanted(dataset: Dataset) -> str:
    return f"data set {dataset.name} is made of the files {', '.join(file.name for file in dataset.files)}"


def _check(file: File, path: Path, origin: str) -> None:
    """Raise UserError naming `origin` unless the content of `path` is the official one."""
    found = content_sha256(path, origin)
    if found != file.content_sha256:
        raise UserError(
            f"{origin} is not the official {file.name}: the SHA-256 of its content is {found[:16]}..., "
            f"expected {file.content_sha256[:16]}...; get the file again or set data.source to another place"
        )
