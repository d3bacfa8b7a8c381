"""What is submitted for Snakemake: names and checksums of its jobs, settings of profiles, and paths that jobs cannot use."""

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nnlo_lib.batch.submission_line import Job
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.shadowed_packages import shadowed_packages

SubmittedJob = Any  # SubmittedJobInfo of Snakemake's executor interface
# No plugin quotes the path of the Python interpreter, and the plugin for LSF does not quote the working folder.
UNQUOTED = r"[\w@%+=:,./-]"


def job_name(job: Job) -> str:
    """Return the rule and the wildcards of a job, as a user knows the job."""
    return str(job.name) if job.is_group() else " ".join([str(job.rule.name), *map(str, list(job.wildcards))])


def job_checksum(job: Job) -> str:
    """Return a checksum of rule, wildcards, parameters, and names and times of the inputs; empty for a group of jobs."""
    if job.is_group():
        return ""
    parts = {
        "rule": str(job.rule.name),
        "wildcards": [str(value) for value in job.wildcards],
        "params": [str(value) for value in job.params],
        "inputs": [(str(path), _modified(str(path))) for path in job.input],
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _modified(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:  # missing, or the file system does not answer
        return 0


def read_profile(path: Path) -> dict[str, Any]:
    """Return the settings of a profile, or none if there is no such file. Raises UserError if it is no YAML."""
    if not path.exists():
        return {}
    try:
        settings = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot read the profile ({error}); repair it") from None
    return settings if isinstance(settings, dict) else {}


def resource_value(value: Any) -> Any:
    """Return a resource of a profile as Snakemake evaluates it.

    Return None if the value depends on the job or the environment, or is text with a unit, such as `2h` or `4GB`.
    """
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        # A name is no expression for Snakemake, but text.
        return None if re.search(r"^\?|^[\d.]+ ?\w+$|\b(attempt|input|threads|wildcards)\b", value) else value


def refuse_workflow(problem: str | None) -> None:
    """Exit with a sentence and status 2 if there is a problem, before the first job and `onstart`.

    Snakemake itself would print lines of its executor, too, and exit with 1.
    """
    if problem:
        print(f"nnlo: error: {problem}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


@dataclass(frozen=True)
class ShellPaths:
    """The characters that the plugin of a batch system passes to a job unchanged, in a working folder and in names of files."""

    folder: str
    file: str

    def problem(self, workflow: Any) -> str | None:
        """Return why jobs of a workflow of Snakemake cannot be submitted, or None."""
        inputs = (path for job in workflow.dag.jobs for path in job.input)
        files = [workflow.main_snakefile, *(workflow.overwrite_configfiles or []), *inputs]
        return self.problem_of(str(workflow.workdir_init), map(str, files))

    def problem_of(self, folder: str, names: Iterable[str]) -> str | None:
        """Return why jobs cannot run in a working folder with files of these names, or None."""
        # The jobs start `python -m snakemake` there.
        if problem := shadowed_packages(folder):
            return problem
        checked = [
            (folder, self.folder, "a working folder"),
            (sys.executable, UNQUOTED, "a Python environment in a folder"),
            *((path, self.file, "a file") for path in names),
        ]
        for path, characters, what in checked:
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
