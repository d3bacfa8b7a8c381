"""Mistakes that the checks find, each with the key of the experiment that is to be corrected."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.validation_messages import Mistake
from nnlo_lib.experiment.yaml_source import KeyPath

# Messages such as `data.crop: 40 needs ...` begin with the key that they concern.
KEY_IN_MESSAGE = re.compile(r"(\w+(?:\.\w+)*): ", re.ASCII)


class Mistakes(list[Mistake]):
    """Mistakes of the settings of one run.

    Attributes:
        overrides: settings in which the run differs from the base of the experiment.
    """

    def __init__(self, experiment: Experiment, name: str) -> None:
        super().__init__()
        self.overrides = experiment.runs.get(name, {})
        self._name = name

    def add(self, key: KeyPath, message: str) -> None:
        """Add a mistake at a key of the run, which is in its overrides or else in the base."""
        self.append((("runs", self._name, *key) if key[0] in self.overrides else key, message))

    def add_error(self, key: KeyPath, error: UserError) -> None:
        """Add the message of an error, at the key that the message begins with, or else at `key`."""
        text = str(error)
        if (found := KEY_IN_MESSAGE.match(text)) and _is_key(found[1].split(".")):
            key, text = tuple(found[1].split(".")), text[found.end() :]
        self.add(key, text)

    @contextmanager
    def collected(self, *key: str) -> Iterator[None]:
        """Add the UserError that the context raises, as `add_error` does."""
        try:
            yield
        except UserError as error:
            self.add_error(key, error)


def _is_key(parts: Sequence[str]) -> bool:
    """Return True if the experiment file can have this key, and False for the name of a file such as train.npz."""
    sections: list[type[ConfigModel]] = [Experiment]
    for part in parts:
        fields = [field for section in sections if (field := section.model_fields.get(part))]
        if not fields:
            return False
        sections = [inner for field in fields for inner in block_types(field.annotation)]
    return True


def distinct_runs(runs: Mapping[str, Run], identity: Callable[[Run], str]) -> Iterator[tuple[str, Run]]:
    """Yield the name and the first run of each identity, so that shared settings are checked once."""
    seen = set[str]()
    for name, run in runs.items():
        if (key := identity(run)) not in seen:
            seen.add(key)
            yield name, run
