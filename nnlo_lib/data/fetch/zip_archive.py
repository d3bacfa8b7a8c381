"""Files of a zip."""

import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.data.fetch.archive_member import Member, not_plain

END_RECORD = b"PK\x05\x06"
END_BYTES = 22  # the record at the end of a zip without its comment
MAX_END_BYTES = END_BYTES + 0xFFFF
ZIP64_COUNT = 0xFFFF  # number of files in the record of a zip that has its number elsewhere


def zip_members(archive: Path) -> Iterator[Member]:
    """Yield the files of a zip. Raises zipfile.BadZipFile if the zip is damaged."""
    with zipfile.ZipFile(archive) as zipped:
        _check_count(archive, len(zipped.infolist()))
        for info in zipped.infolist():
            if info.is_dir():
                continue
            if info.external_attr >> 28 not in (0, 8):  # type of the file, if the archive was written on Unix
                raise not_plain(archive, info.filename)
            with zipped.open(info) as stream:
                yield Member(info.filename, info.file_size, stream)


def _check_count(archive: Path, found: int) -> None:
    """Raise zipfile.BadZipFile if the directory of the zip does not have as many files as its end record says.

    A damaged length in the directory hides the files that follow, which zipfile does not notice.
    """
    with archive.open("rb") as file:
        file.seek(-min(MAX_END_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        tail = file.read()
    # The last place at which a whole record fits.
    record = tail.rfind(END_RECORD, 0, len(tail) - END_BYTES + len(END_RECORD))
    (declared,) = struct.unpack_from("<H", tail, record + 10)
    if declared not in (found & 0xFFFF, ZIP64_COUNT):
        raise zipfile.BadZipFile(f"{found} files in the directory instead of {declared}")
