"""A file for libraries that must not see write errors, such as HDF5: the first error is raised when the file is closed."""

from pathlib import Path
from types import TracebackType


class DeferredErrorFile:
    """New binary file whose write errors wait for the end of the `with` block.

    HDF5 crashes the process if it cannot flush a file that it closes (segmentation fault). Therefore each write seems
    to succeed, and the end of the block raises the first OSError.
    """

    def __init__(self, path: Path) -> None:
        # Unbuffered, so that an error belongs to a write and none is left for the end.
        self._file = path.open("wb+", buffering=0)
        self._error: OSError | None = None

    def __enter__(self) -> "DeferredErrorFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        # After a failed write, an exception of the library is a consequence.
        if self._error is not None:
            raise self._error

    def write(self, content: memoryview) -> int:
        """Write at the current position; after the first error, do nothing."""
        written = 0
        try:
            # One system call writes at most 2 GiB, and less if the disk becomes full.
            while self._error is None and written < len(content):
                written += self._file.write(content[written:])
        except OSError as error:
            self._error = error
        return len(content)

    def truncate(self, size: int) -> None:
        """Set the length of the file; after the first error, do nothing."""
        try:
            if self._error is None:
                self._file.truncate(size)
        except OSError as error:
            self._error = error

    def read(self, size: int = -1) -> bytes:
        """Return bytes that were written; h5py recognizes an open file by this method."""
        return self._file.read(size) or b""

    def readinto(self, buffer: memoryview) -> int:
        """Read bytes that were written."""
        return self._file.readinto(buffer) or 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the current position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the current position."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: no write is buffered."""
