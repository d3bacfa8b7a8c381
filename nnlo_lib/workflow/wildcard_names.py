"""Names in the wildcards and paths of Snakemake's rules."""

import re
from collections.abc import Iterable

from nnlo_lib.core.errors import UserError


def any_of(names: Iterable[str]) -> str:
    """Return the regular expression of a wildcard with these values; without values it matches nothing."""
    return "|".join(map(re.escape, names)) or "(?!)"


def refuse_braces(files: Iterable[str]) -> None:
    """Raise UserError for an input file with braces in its path.

    Snakemake replaces text in braces by the value of a wildcard, and cannot escape the braces of a path.
    """
    for file in files:
        if "{" in file:
            raise UserError(
                f"{file}: Snakemake takes text in braces for a wildcard; rename the file or its folder, or use `nnlo run`"
            )
