"""Files that a reader never sees partly written, also after a power failure; JSON texts and checksums of files."""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import cause_of
from nnlo_lib.core.secrets import mask

# Of a JSON file's content, kept in the file: it shows a number that was changed by hand.
CHECKSUM_KEY = "content_sha256"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and rename it, otherwise remove it.

    Raises UserError with `path` if the file system refuses to write (full disk, missing permission).
    """
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _reserve(path)
        yield part
        _publish(part, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {cause_of(error, path)}") from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _reserve(path: Path) -> Path:
    """Create an empty file with an unused name and the default permissions of a new file."""
    # In the folder of the target, because a rename is atomic only within one file system. The kernel applies the umask,
    # which this process could only read by changing it for all its threads.
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    return part


def _publish(part: Path, path: Path) -> None:
    # Content reaches the disk before the name: after a crash, `path` is the old or the complete new file.
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)
    fsync_folder(path.parent)


def write_settings(path: Path, text: str) -> None:
    """Write settings atomically; if they have a secret, only the owner can read the file. Raises UserError."""
    with atomic_write(path) as part:
        if mask(text) != text:
            part.chmod(0o600)
        part.write_text(text, encoding="utf-8")


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power failure, where the file system can flush folders."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and user-space file systems refuse to flush a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(handle)


def create_folder(folder: Path) -> None:
    """Create a folder and its parents, so that they survive a power failure. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in (folder, *folder.absolute().parents):
        # A parent that is not readable, such as /home on some machines, was not created here.
        with suppress(PermissionError):
            fsync_folder(each)


def load_json(text: str | bytes) -> Any:
    """Return the values of a JSON text, which may be damaged. Raises ValueError if it is not JSON or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the values are nested too deeply") from error


def without_nan(value: Any) -> Any:
    """Return a JSON value with None in place of NaN and of infinite numbers, which JSON does not have and other readers refuse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(each) for key, each in value.items()}
    return [without_nan(each) for each in value] if isinstance(value, list | tuple) else value


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum under CHECKSUM_KEY, and null for numbers that are not finite."""
    content = without_nan(content)
    return {**content, CHECKSUM_KEY: content_checksum(content)}


def content_checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, independent of the order of keys; CHECKSUM_KEY is left out."""
    # As it will be read: JSON turns numbers that are keys into texts, which are sorted differently.
    stored = json.loads(json.dumps({key: content[key] for key in content if key != CHECKSUM_KEY}))
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(recorded: Any, current: Any, chosen: Any, key: str = "") -> Iterator[str]:
    """Yield one message per difference of two JSON values, with its dotted key; a missing value is null.

    A key that was not recorded, which may be of a later version, counts only if it is in `chosen`, the values of `current`
    that are no defaults.
    """
    if isinstance(recorded, dict) and isinstance(current, dict):
        chosen = chosen if isinstance(chosen, dict) else {}
        for name in sorted({*recorded, *chosen} & {*recorded, *current}):
            path = f"{key}.{name}" if key else name
            yield from differences(recorded.get(name), current.get(name), chosen.get(name), path)
    elif recorded != current:
        yield f"{key} was {json.dumps(recorded)} and is {json.dumps(current)}"
