"""The folder of this Python interpreter, which comes first in PATH of the commands that NNLO starts."""

import os
import sys
from pathlib import Path

from nnlo_lib.core.errors import UserError


def interpreter_folder() -> Path:
    """Return the folder of the Python interpreter. Raises UserError if PATH cannot contain the folder."""
    folder = Path(sys.executable).parent
    if os.pathsep in str(folder):
        raise UserError(
            f"{folder}: the folder of the Python environment cannot be in PATH, because its name contains "
            f"'{os.pathsep}'; create the environment in another folder"
        )
    return folder
