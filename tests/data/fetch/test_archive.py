import gzip
import io
import resource
import stat
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch import archive as archives
from nnlo_lib.data.fetch import tar_archive
from nnlo_lib.data.fetch.archive import extract, is_archive, single_subfolder

Usage = namedtuple("Usage", "total used free")
FILES = {"top/a/1.txt": b"one", "top/b/2.bin": bytes(range(256)) * 1000, "top/empty": b""}


def tar(path, files=FILES, mode="w:gz", **fields):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


MAKERS = {
    "x.zip": zipped,
    "x.tar": lambda path: tar(path, mode="w"),
    "x.tar.gz": tar,
    "x.tgz": tar,
    "x.tar.bz2": lambda path: tar(path, mode="w:bz2"),
    "x.tar.xz": lambda path: tar(path, mode="w:xz"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_gives_its_files(tmp_path, name):
    assert is_archive(name.upper())
    extract(MAKERS[name](tmp_path / name), tmp_path / "out")
    found = {
        p.relative_to(tmp_path / "out").as_posix(): p.read_bytes()
        for p in (tmp_path / "out").rglob("*")
        if p.is_file()
    }
    assert found == FILES
    assert single_subfolder(tmp_path / "out") == tmp_path / "out" / "top"


def test_what_was_there_is_replaced_as_a_whole(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    extract(zipped(tmp_path / "x.zip"), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["top"]


def left(tmp_path):
    """Return all paths in the folder except the archive itself."""
    return [path for path in tmp_path.rglob("*") if path.name not in ("x.zip", "x.tar.gz")]


OUTSIDE = ["../evil", "/evil", "a/../../evil", "C:/evil", "..\\evil", "a/..\\..\\evil"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("maker", [lambda p, f: zipped(p / "x.zip", f), lambda p, f: tar(p / "x.tar.gz", f)])
def test_nothing_leaves_the_folder(tmp_path, name, maker):
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="could be outside the target folder"):
        extract(maker(tmp_path / "in", {"fine": b"1", name: b"2"}), tmp_path / "in" / "out")
    assert left(tmp_path / "in") == []
    assert not (tmp_path / "evil").exists()


KINDS = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE,
}


@pytest.mark.parametrize("kind", KINDS)
def test_links_and_devices_are_refused(tmp_path, kind):
    path = tar(tmp_path / "x.tar.gz", {"thing": b""}, type=KINDS[kind], linkname="/etc/passwd")
    with pytest.raises(UserError, match="thing is a link or device"):
        extract(path, tmp_path / "out")
    assert left(tmp_path) == []


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("thing")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match="thing is a link or device"):
        extract(tmp_path / "x.zip", tmp_path / "out")
    assert left(tmp_path) == []


@pytest.mark.parametrize("maker", [zipped, tar])
def test_more_than_the_disk_holds_is_refused_before_it_is_full(tmp_path, maker, monkeypatch):
    monkeypatch.setattr(
        archives.shutil, "disk_usage", lambda path: Usage(0, 0, archives.FREE_SPACE_MARGIN_BYTES + 1000)
    )
    path = maker(tmp_path / ("x.zip" if maker is zipped else "x.tar.gz"))
    with pytest.raises(UserError, match=r"files up to top/b/2\.bin need .* free disk space"):
        extract(path, tmp_path / "out")
    assert left(tmp_path) == []


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    with pytest.raises(UserError, match="top/empty"):
        extract(zipped(tmp_path / "x.zip"), tmp_path / "out")


@pytest.mark.parametrize("maker", [zipped, tar])
def test_an_honest_bomb_is_refused_and_what_is_small_is_not(tmp_path, maker, monkeypatch):
    """Deflate shrinks zeros by a factor of 1000; a lower HIGHEST_RATIO refuses them only above the margin."""
    path = maker(tmp_path / ("x.zip" if maker is zipped else "x.tar.gz"), {"zeros": bytes(3_000_000)})
    monkeypatch.setattr(archives, "HIGHEST_RATIO", 500)
    extract(path, tmp_path / "small")
    assert (tmp_path / "small" / "zeros").stat().st_size == 3_000_000
    monkeypatch.setattr(archives, "FREE_SPACE_MARGIN_BYTES", 1_000_000)
    with pytest.raises(UserError, match=r"files up to zeros are more than 500 times .*data\.source"):
        extract(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


HEADERS = {"pax": tarfile.XHDTYPE, "global pax": tarfile.XGLTYPE, "long name": tarfile.GNUTYPE_LONGNAME}


@pytest.mark.processes
@pytest.mark.parametrize("kind", HEADERS)
def test_a_huge_header_does_not_fill_the_memory(tmp_path, kind):
    """A header of 512 MiB in an archive of 0.5 MB is refused in a process with 300 MiB of address space."""
    info = tarfile.TarInfo("x")
    info.type, info.size = HEADERS[kind], 512 << 20
    # Concatenated gzip streams are one gzip file.
    megabyte = gzip.compress(bytes(1 << 20), 6)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT)) + megabyte * 512)
    code = "import sys; from pathlib import Path; from nnlo_lib.data.fetch.archive import extract; extract(*map(Path, sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.tar.gz"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)),
    )
    assert "UserError" in done.stderr
    assert "too many bytes of metadata between two files" in done.stderr
    assert left(tmp_path) == []


def test_folders_and_names_of_any_number_are_no_header_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_archive, "MAX_TAR_METADATA_BYTES", 20_000)
    files = {f"{'long/' * 60}{number}": b"1" for number in range(100)}
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for number in range(200):
            info = tarfile.TarInfo(f"folder/{number}")
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    extract(tmp_path / "x.tar.gz", tmp_path / "out")
    assert sum(path.is_file() for path in (tmp_path / "out").rglob("*")) == 100


def test_a_file_may_be_larger_than_what_may_lie_between(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_archive, "MAX_TAR_METADATA_BYTES", 20_000)
    extract(tar(tmp_path / "x.tar.gz"), tmp_path / "out")
    assert (tmp_path / "out" / "top" / "b" / "2.bin").read_bytes() == FILES["top/b/2.bin"]


@pytest.mark.processes
def test_a_sparse_file_makes_no_room_for_a_huge_header(tmp_path, monkeypatch):
    """The declared size of a sparse file exceeds its bytes in the archive; the limit on metadata still holds."""
    monkeypatch.setattr(tar_archive, "MAX_TAR_METADATA_BYTES", 20_000)
    with (tmp_path / "holes").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"x" * 4096)
    subprocess.run(["tar", "-S", "--format=gnu", "-cf", "holes.tar", "holes"], cwd=tmp_path, check=True)
    extract(tmp_path / "holes.tar", tmp_path / "out")
    assert (tmp_path / "out" / "holes").read_bytes() == (tmp_path / "holes").read_bytes()
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 200_000
    whole = (tmp_path / "holes.tar").read_bytes().rstrip(b"\0")
    header = info.tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "x.tar").write_bytes(whole + bytes(-len(whole) % 512) + header + bytes(300_000))
    with pytest.raises(UserError, match="metadata between two files"):
        extract(tmp_path / "x.tar", tmp_path / "out")


@pytest.mark.long
def test_memory_does_not_grow_with_the_members(tmp_path):
    path = tar(tmp_path / "x.tar", {f"{number:06d}": b"" for number in range(10_000)}, mode="w")
    tracemalloc.start()
    count = sum(1 for _ in archives._members(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 2 * archives.CHUNK_BYTES


def test_what_the_system_refuses_is_not_called_damaged(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot extract .*x\.zip into .*Not a directory"):
        extract(zipped(tmp_path / "x.zip"), tmp_path / "file" / "out")
    with pytest.raises(UserError, match=r"cannot extract .*none\.zip.*No such file"):
        extract(tmp_path / "none.zip", tmp_path / "out")


def test_a_bomb_that_declares_little_yields_no_more(tmp_path):
    """A file of ten million zeros with a declared size of ten bytes is refused."""
    path = zipped(tmp_path / "x.zip", {"bomb": bytes(10_000_000)})
    size = (10_000_000).to_bytes(4, "little")
    content = path.read_bytes()
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(UserError, match=r"x\.zip"):
        extract(path, tmp_path / "out")
    assert left(tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_damage_anywhere_is_named_or_harmless(tmp_path, name):
    whole = MAKERS[name](tmp_path / name).read_bytes()
    path, refused = tmp_path / name, 0
    damaged = [whole[: len(whole) * part // 20] for part in range(20)]
    for at in range(0, len(whole), max(1, len(whole) // 150)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        damaged.append(bytes(flipped))
    for content in [*damaged, b"<html>not found</html>"]:
        path.write_bytes(content)
        try:
            extract(path, tmp_path / "out")
        except UserError as error:
            refused += name in str(error)
        else:
            found = {p.name: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
            assert found == {Path(file).name: content for file, content in FILES.items()}
    assert refused > 100
    assert not (tmp_path / ".out.part").exists()
