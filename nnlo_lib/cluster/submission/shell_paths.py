"""Paths on the command lines of a batch system's jobs, which Snakemake and its plugins do not quote completely."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# No plugin quotes the path of the Python interpreter, and the plugin for LSF does not quote the working folder.
UNQUOTED = r"[\w@%+=:,./-]"


@dataclass(frozen=True)
class ShellPaths:
    """The characters that the plugin of a batch system passes to a job unchanged, as regular expressions.

    Attributes:
        folder: characters of the working folder.
        file: characters of the Snakefile, the experiment file and the input files.
    """

    folder: str
    file: str

    def problem(self, workflow: Any) -> str | None:
        """Return why jobs of a workflow of Snakemake cannot be submitted, or None."""
        found = self.problem_of(str(workflow.workdir_init), _files(workflow))
        return f"nnlo: {found}" if found else None

    def problem_of(self, folder: str, names: Iterable[str]) -> str | None:
        """Return why jobs cannot be submitted from a working folder with files of these names, or None."""
        files = ((path, self.file, "a file") for path in names)
        folders = [
            (folder, self.folder, "a working folder"),
            (sys.executable, UNQUOTED, "a Python environment in a folder"),
        ]
        for path, characters, what in (*folders, *files):
            if refused := re.sub(characters, "", path):
                return (
                    f"{path}: jobs of the batch system cannot use {what} with {refused[0]!r} in its path, which "
                    "Snakemake does not quote; rename or move it, or run on this machine with --profile local"
                )
        return None


# The submitting shell reads the command of a job between double quotes, which the plugin for Slurm escapes in the command.
# Snakemake takes a path that starts with a quote for a quoted path.
SLURM_PATHS = ShellPaths(folder=r"""[^$`\\\n"]""", file=r"""[^$`\\\n"']|(?<!^)'""")
LSF_PATHS = ShellPaths(folder=UNQUOTED, file=r"""[^$`\\\n"']""")


def _files(workflow: Any) -> Iterator[str]:
    yield str(workflow.main_snakefile)
    yield from map(str, workflow.overwrite_configfiles or [])
    for job in workflow.dag.jobs:
        yield from map(str, job.input)
