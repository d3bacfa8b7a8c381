"""Archives give their files; damage, bombs and full disks are sentences. Hostile members: tests/security."""

import io
import random
import tarfile
import zipfile
from collections import namedtuple

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch import archive as archives
from nnlo_lib.data.fetch.archive import extract, is_archive, single_subfolder

BLOCK = 512
FILES = {
    f"top/{name}/{number}.bin": random.Random(number).randbytes(600) for name in "ab" for number in range(4)
}
LONG = {f"{'long/' * 30}{'x' * 90}": b"1", "short": b"", "name-\N{LATIN SMALL LETTER E WITH ACUTE}": b"22"}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar(files=FILES, mode="w", format=tarfile.GNU_FORMAT):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode, format=format) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def zipped(files=FILES):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


MAKERS = {
    "x.zip": zipped,
    "x.tar": tar,
    "x.tar.gz": lambda files=FILES: tar(files, "w:gz"),
    "x.tgz": lambda: tar(mode="w:gz"),
    "x.tar.bz2": lambda: tar(mode="w:bz2"),
    "x.tar.xz": lambda: tar(mode="w:xz"),
}
BOTH = pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])


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
        assert not (folder / ".out.part").exists()
        return None if str(folder / name) in str(error) else str(error)
    return files_in(folder / "out")


def flipped(content, at, bit):
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_replaces_the_folder_by_its_files(tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").touch()
    assert is_archive(name.upper())
    assert outcome(tmp_path, name, MAKERS[name]()) == FILES
    assert single_subfolder(tmp_path / "out") == tmp_path / "out/top"


@BOTH
def test_more_than_the_disk_holds_is_refused_before_the_disk_is_full(tmp_path, name, monkeypatch):
    usage = namedtuple("Usage", "total used free")(0, 0, archives.FREE_SPACE_MARGIN_BYTES + 1000)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: usage)
    (tmp_path / name).write_bytes(MAKERS[name]())
    with pytest.raises(UserError, match=r"files up to top/a/1\.bin need .* free disk space"):
        extract(tmp_path / name, tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == [name]


@BOTH
def test_a_bomb_is_refused_and_a_small_archive_of_zeros_is_not(tmp_path, name, monkeypatch):
    """Deflate shrinks zeros by a factor of 1000; a lower HIGHEST_RATIO refuses them only above the margin."""
    monkeypatch.setattr(archives, "HIGHEST_RATIO", 500)
    zeros = {"zeros": bytes(3_000_000)}
    assert outcome(tmp_path, name, MAKERS[name](zeros)) == zeros
    monkeypatch.setattr(archives, "FREE_SPACE_MARGIN_BYTES", 1_000_000)
    with pytest.raises(UserError, match=r"files up to zeros need .* more than 500 times .*data\.source"):
        extract(tmp_path / name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_error_of_the_file_system_is_not_called_damage(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "x.zip").write_bytes(zipped())
    with pytest.raises(UserError, match=r"cannot extract .*x\.zip into .*Not a directory"):
        extract(tmp_path / "x.zip", tmp_path / "file" / "out")
    with pytest.raises(UserError, match=r"cannot extract .*none\.zip.*No such file"):
        extract(tmp_path / "none.zip", tmp_path / "out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archives")


@BOTH
def test_damage_anywhere_is_named_or_harmless(folder, name):
    whole = MAKERS[name]()
    damaged = [whole[: len(whole) * part // 10] for part in range(10)] + [b"<html>not found</html>"]
    damaged += [flipped(whole, at, 4) for at in range(0, len(whole), len(whole) // 60)]
    found = [outcome(folder, name, content) for content in damaged]
    assert all(files in (None, FILES) for files in found)
    assert found.count(None) > 50


@pytest.mark.parametrize("format", FORMATS)
def test_tars_of_python_are_accepted_whole_and_refused_cut_between_long_names(tmp_path, format):
    """A plain tar has checksums of its headers alone; long names are in blocks before the header of the file."""
    whole = tar(LONG, format=FORMATS[format])
    assert outcome(tmp_path, "x.tar", whole) == LONG
    end = -(-len(whole.rstrip(b"\0")) // BLOCK) * BLOCK + 2 * BLOCK
    assert all(outcome(tmp_path, "x.tar", whole[:length]) is None for length in range(0, end, 256))
