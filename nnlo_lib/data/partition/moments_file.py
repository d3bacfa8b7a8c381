"""File with the mean and deviation of some samples, which saves reading the samples again."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.content_checksum import CHECKSUM_KEY, content_checksum, with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json

Moments = list[
    dict[str, list[float]]
]  # mean and std of each channel, by input; empty for an input without moments


@dataclass(frozen=True)
class MomentsFile:
    """File with the moments of samples.

    Attributes:
        path: the file, which may be missing.
        samples: key of the samples, by which a file of other samples is recognized.
    """

    path: Path
    samples: str

    def read(self) -> Moments | None:
        """Return the moments; None if the file is missing, damaged or of other samples."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            content = load_json(self.path.read_text())
            if content[CHECKSUM_KEY] == content_checksum(content) and content["samples"] == self.samples:
                found: Moments = content["moments"]
                return found
        return None

    def write(self, moments: Moments) -> None:
        """Write the moments, unless the file has them; a full disk or a missing permission is no error."""
        # The file only saves time.
        with suppress(UserError):
            if self.read() != moments:
                with atomic_write(self.path) as part:
                    part.write_text(json.dumps(with_checksum({"samples": self.samples, "moments": moments})))
