"""Which experiment file a results folder belongs to: two files with one `name:` would replace each other's tables and page."""

import json
import os
import shlex
from contextlib import suppress
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.yaml_source import read_yaml

DEFAULT_NAME = Experiment.model_fields["name"].default


def refuse_other_owner(name: str, file: str) -> None:
    """Raise UserError if the results of the experiment `name` belong to another file, which still has this name."""
    record, here, other = ExperimentPaths(name).owner, Path(file), ""
    with suppress(OSError, ValueError, KeyError, TypeError, UserError):
        owner = Path(load_json(record.read_text())["file"])
        # A file that was renamed, edited or copied is no other experiment.
        if not owner.samefile(here) and owner.read_bytes() != here.read_bytes():
            other = str(owner) if read_yaml(owner)[0].get("name", DEFAULT_NAME) == name else ""
    if other:
        raise UserError(
            f"name: {record.parents[1]} has the results of {other}, and {os.path.relpath(file)} has the same name; set "
            f"another `name:` there, or give it this folder by: rm {shlex.quote(str(record))}"
        )


def record_owner(name: str, file: str) -> None:
    """Record the experiment file of a results folder."""
    path = Path(file).resolve()
    with suppress(ValueError):  # outside of the working directory
        path = path.relative_to(Path.cwd())
    record, text = ExperimentPaths(name).owner, json.dumps({"file": str(path)})
    if not record.exists() or record.read_text() != text:
        with atomic_write(record) as part:
            part.write_text(text)
