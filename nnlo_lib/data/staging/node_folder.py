"""The folder of `data.stage_to` on a node."""

import os
import re
from pathlib import Path

from nnlo_lib.core.errors import UserError


def node_folder(folder: str) -> Path:
    """Return the existing folder of a path that may contain environment variables. Raises UserError."""
    for variable in re.findall(r"\$\{?(\w+)", folder):
        if not os.environ.get(variable):
            raise UserError(
                f"data.stage_to: environment variable {variable} is not set on this node; set it, or change data.stage_to"
            )
    path = os.path.expanduser(os.path.expandvars(folder))
    if not Path(path).is_dir():
        raise UserError(
            f"data.stage_to: folder {path} does not exist on this node; create it, or change data.stage_to"
        )
    return Path(path)
