"""What the page of an experiment was made from, recorded beside it, so that the next start knows whether the page is current."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.config.paths import ExperimentPaths, RunPaths, SearchPaths
from nnlo_lib.core.atomic_file import atomic_write, load_json

Sources = dict[str, str | None]


def page_sources(experiment_file: Path | None, folders: Sequence[Path], search: Path | None) -> Sources:
    """Return the SHA-256 of an experiment file, and of its results: the evaluations of all jobs, and the trials of a search."""
    results = hashlib.sha256()
    files = [RunPaths(folder).evaluation for folder in sorted(folders)]
    for path in [*files, *([SearchPaths(search).table] if search else [])]:
        results.update(f"{'/'.join(path.parts[-4:])} {_digest(path)}\n".encode())
    return {
        "experiment": _digest(experiment_file) if experiment_file else None,
        "results": results.hexdigest(),
    }


def record_page_sources(page: Path, sources: Sources) -> None:
    """Record what a page was made from, if it is the page of an experiment's folder and no copy elsewhere."""
    paths = ExperimentPaths(page.parent.name)
    if page == paths.page:
        with atomic_write(paths.made_from) as part:
            part.write_text(json.dumps({"page": _digest(page), **sources}))


def read_page_sources(page: Path) -> Sources:
    """Return what a page was made from; without values if there is no record of this page."""
    try:
        found = load_json(ExperimentPaths(page.parent.name).made_from.read_text())
    except (OSError, ValueError):
        found = {}
    is_known = isinstance(found, dict) and found.get("page") == _digest(page)
    return {name: found.get(name) if is_known else None for name in ("experiment", "results")}


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
