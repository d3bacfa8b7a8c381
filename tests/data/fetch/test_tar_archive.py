"""Plain tars: what the standard tools write is accepted, and no damage loses a file silently."""

import io
import random
import subprocess
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import extract

BLOCK = 512
FILES = {
    f"top/{name}/{number}.bin": random.Random(number).randbytes(600) for name in "ab" for number in range(4)
}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar_bytes(files=FILES, format=tarfile.GNU_FORMAT):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=format) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def zip_bytes(files=FILES):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def files_in(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def outcome(folder, name, content):
    """Return the extracted files, or None if the archive was refused with a sentence that names it."""
    (folder / name).write_bytes(content)
    try:
        extract(folder / name, folder / "out")
    except UserError as error:
        return None if str(folder / name) in str(error) else str(error)
    return files_in(folder / "out")


WHOLE = tar_bytes()
HEADERS = range(0, len(FILES) * 1536, 1536)
END = len(FILES) * 1536 + 2 * BLOCK  # first byte after the two blocks that mark the end


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tars")


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, END - 1))
def test_a_tar_cut_at_any_byte_is_refused(folder, length):
    assert outcome(folder, "x.tar", WHOLE[:length]) is None


def test_a_tar_without_its_padding_is_accepted(folder):
    assert outcome(folder, "x.tar", WHOLE[:END]) == FILES


def flipped(content, at, bit):
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


@settings(max_examples=150, deadline=None)
@given(header=st.sampled_from(HEADERS), at=st.integers(0, BLOCK - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_header_is_refused_or_harmless(folder, header, at, bit):
    """Only the filling characters of the checksum field itself may change."""
    found = outcome(folder, "x.tar", flipped(WHOLE, header + at, bit))
    assert found is None or (found == FILES and 148 <= at < 156)


@settings(max_examples=50, deadline=None)
@given(at=st.integers(END - 2 * BLOCK, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_after_the_last_file_is_refused(folder, at, bit):
    assert outcome(folder, "x.tar", flipped(WHOLE, at, bit)) is None


def test_a_second_archive_behind_the_first_is_refused(folder):
    (folder / "x.tar").write_bytes(WHOLE + tar_bytes({"other": b"1"}))
    with pytest.raises(UserError, match="further data follow the end of the archive"):
        extract(folder / "x.tar", folder / "out")


@settings(max_examples=150, deadline=None)
@given(data=st.data(), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_directory_of_a_zip_loses_no_file(folder, data, bit):
    whole = zip_bytes()
    at = data.draw(st.integers(whole.index(b"PK\x01\x02"), len(whole) - 1))
    assert outcome(folder, "x.zip", flipped(whole, at, bit)) in (None, FILES)


def test_each_length_in_the_directory_of_a_zip_is_held_against_the_number_of_files(folder):
    """The length of a comment at byte 32 of an entry hides all entries behind it."""
    whole = zip_bytes()
    last = whole.rindex(b"PK\x01\x02")
    (folder / "x.zip").write_bytes(flipped(whole, whole.rindex(b"PK\x01\x02", 0, last) + 33, 7))
    with pytest.raises(UserError, match="7 files in the directory instead of 8"):
        extract(folder / "x.zip", folder / "out")


LONG = {f"{'long/' * 30}{'x' * 90}": b"1", "short": b"", "name-\N{LATIN SMALL LETTER E WITH ACUTE}": b"22"}


@pytest.mark.parametrize("format", FORMATS)
def test_tars_of_python_are_accepted(tmp_path, format):
    assert outcome(tmp_path, "x.tar", tar_bytes(LONG, FORMATS[format])) == LONG


@settings(max_examples=30, deadline=None)
@given(format=st.sampled_from(sorted(FORMATS)), cut=st.floats(0, 1, exclude_max=True))
def test_a_cut_between_long_names_is_refused(folder, format, cut):
    """Long names are in blocks before the header of the file."""
    whole = tar_bytes(LONG, FORMATS[format])
    end = -(-len(whole.rstrip(b"\0")) // BLOCK) * BLOCK + 2 * BLOCK
    assert outcome(folder, "x.tar", whole[: int(cut * end)]) is None


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.processes
@pytest.mark.parametrize("options", [["--format=v7"], ["--format=ustar"], ["--format=gnu", "-S"], ["--format=pax", "-S"], ["--blocking-factor=1"]])  # fmt: skip
def test_tars_of_gnu_tar_are_accepted(tmp_path, options):
    files = dict(FILES) if "v7" in options[0] else FILES | LONG
    write(tmp_path / "in", files)
    if "-S" in options:
        with (tmp_path / "in" / "holes").open("wb") as file:
            file.seek(1 << 20)
            file.write(b"x" * 4096)
        files = files | {"holes": (tmp_path / "in" / "holes").read_bytes()}
    names = sorted(path.name for path in (tmp_path / "in").iterdir())
    subprocess.run(["tar", *options, "-cf", "../x.tar", *names], cwd=tmp_path / "in", check=True)
    assert outcome(tmp_path, "x.tar", (tmp_path / "x.tar").read_bytes()) == files
