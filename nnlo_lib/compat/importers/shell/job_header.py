"""Headers of job scripts: `#SBATCH` of Slurm and `#BSUB` of LSF."""

import re
import shlex

from nnlo_lib.compat.importers.shell.command_prefix import parse_options
from nnlo_lib.compat.importers.shell.launch_settings import LaunchSettings
from nnlo_lib.compat.importers.shell.launcher_options import SUBMITTERS
from nnlo_lib.core.errors import UserError

HEADER = re.compile(r"^#(SBATCH|BSUB|PBS|COBALT|\$)\s+(.*)$")
HERE_DOCUMENT = re.compile(r"\b(?:sbatch|bsub)\b.*<<")
PROGRAMS = {"SBATCH": "sbatch", "BSUB": "bsub"}
OTHER_SYSTEM = "nnlo reads the headers of Slurm and LSF only; set the `resources` section"


def read_header(text: str) -> LaunchSettings:
    """Return the options in the header of a job script.

    Raises UserError if an option is unknown or not valid.
    """
    settings, has_started = LaunchSettings(), False
    for number, line in enumerate(text.splitlines(), start=1):
        found = HEADER.match(line)
        # Slurm ignores its lines after the first command; LSF reads all of them.
        has_started = has_started or (bool(line.strip()) and not line.lstrip().startswith("#"))
        if HERE_DOCUMENT.search(line):  # the submitted script follows
            has_started = False
        if not found:
            continue
        system, options = found[1], re.sub(r"\s#.*", "", found[2])
        if system == "SBATCH" and has_started:
            settings.remarks.append(
                f"line {number}: {line.strip()}: Slurm ignores it after the first command"
            )
        elif system not in PROGRAMS:
            settings.written.append(line.strip())
            settings.untranslated.append((line.strip(), OTHER_SYSTEM))
        else:
            _add(settings, PROGRAMS[system], options, number)
    return settings


def _add(settings: LaunchSettings, program: str, options: str, number: int) -> None:
    try:
        rest = parse_options(program, SUBMITTERS[program], shlex.split(options), settings)
    except ValueError as error:
        raise UserError(
            f"line {number}: cannot parse the header ({error}): {options}; check its quotes"
        ) from error
    except UserError as error:
        raise UserError(f"line {number}: {error}") from error
    if rest:
        raise UserError(
            f"line {number}: unexpected word '{rest[0]}' in the header; write it after its option"
        )
