"""Names of networks of other packages, `<prefix>:<name>`. The module imports none of the packages."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

LIBRARIES = {"timm": "timm", "hf": "transformers"}  # prefix -> package
PATTERN = r"^(timm|hf):[\w.-]+$"


def library_of(name: str) -> str | None:
    """Return the prefix of a model's name, or None if the model is of the zoo or of a file."""
    prefix, colon, network = name.partition(":")
    return prefix if colon and network and prefix in LIBRARIES else None


def missing_library(name: str) -> str | None:
    """Return the error message with the remedy if the package of a model is not installed, else None."""
    prefix = library_of(name)
    if prefix is None or find_spec(LIBRARIES[prefix]) is not None:
        return None
    return f"{name} requires {LIBRARIES[prefix]}, which is not installed; pip install 'nnlo[{prefix}]'"


def similar_names(name: str, known: Iterable[str]) -> str:
    """Return known names that are similar to an unknown one, as text of an error."""
    found = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(found)}?" if found else "check the name in its documentation"
