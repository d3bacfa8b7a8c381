"""`data.stage_command`: the store is copied by a command of the user; the commands are programs of this machine."""

import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process import ProcessState
from nnlo_lib.data.store.shard_copy import run_copy_command
from nnlo_lib.data.store.staging import stage_dataset

runs_programs = pytest.mark.processes


def program(folder: Path, text: str) -> str:
    """Write a program of Python; return the command that runs it with source and target."""
    path = folder / "copy.py"
    path.write_text(f"import os, shutil, sys, time\nsource, target = sys.argv[1:]\n{text}\n")
    return f"{sys.executable} -S '{path}' {{source}} {{target}}"


def shards(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".h5", ".npz")]


@runs_programs
def test_each_shard_is_copied_by_the_command(digits, tmp_path):
    calls, place = tmp_path / "calls", tmp_path / "node"
    place.mkdir()
    text = f"shutil.copyfile(source, target); open({str(calls)!r}, 'a').write(source + '\\n')"
    stage_dataset(digits, str(place), command=program(tmp_path, text)).verify()
    assert sorted(calls.read_text().split()) == sorted(str(path) for path in shards(digits.folder))
    stage_dataset(digits, str(place), command="false {source} {target}")  # nothing is missing


@runs_programs
def test_paths_are_words_or_parts_of_words_whatever_their_characters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    node = tmp_path / "a disk; $(touch hit) {target}"
    node.mkdir()
    source = node / "in {source}"
    source.write_text("x")
    for number, command in enumerate(("cp -- {source} {target}", "dd if={source} of={target}")):
        run_copy_command(command, source, node / f"out{number}")
        assert (node / f"out{number}").read_text() == "x"
    assert not (tmp_path / "hit").exists()


@runs_programs
def test_a_wrong_copy_is_refused_and_leaves_no_file(digits, tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    command = program(tmp_path, "open(target, 'w').write('something else')")
    with pytest.raises(UserError, match=r"data\.stage_command: the copy of .* has another checksum"):
        stage_dataset(digits, str(folder), command=command)
    assert not shards(folder)
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('no'); print('bucket'); sys.exit(3)", r"ended with status 3: no \| bucket; correct data"),
        ("pass", "ended with status 0, but wrote no file, without output"),
        (None, r"'/no/cp /.*' cannot start: No such file or directory"),
        ("os.kill(os.getpid(), 9)", "ended with status -9, without output"),
        ("[print(number) for number in range(9)]; sys.exit(1)", r"status 1: 4 \| 5 \| 6 \| 7 \| 8;"),
    ],
)
@runs_programs
def test_a_failure_has_the_last_lines_of_the_command(tmp_path, text, message):
    (tmp_path / "in").write_text("x")
    command = program(tmp_path, text) if text else "/no/cp {source} {target}"
    with pytest.raises(UserError, match=message):
        run_copy_command(command, tmp_path / "in", tmp_path / "out")


@runs_programs
def test_a_command_that_hangs_is_killed_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    text = f"os.fork(); open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    with pytest.raises(UserError, match=r"took more than 1 s, without output"):
        run_copy_command(program(tmp_path, text), tmp_path / "in", tmp_path / "out", timeout_s=1)
    # On a busy machine, the command may be killed before it has written anything.
    started, deadline = pids.read_text().split() if pids.exists() else [], time.monotonic() + 200
    while any(ProcessState.of(int(pid)).letter not in ("", "Z") for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"stage_command": "cp {source} {target}"}, "requires stage_to; set `stage_to`"),
        ({"stage_to": "/tmp", "stage_command": "cp"}, "{source} is missing; write for example: cp {source} {target}"),
        ({"stage_to": "/tmp", "stage_command": "cp {source}"}, "{target} is missing"),
        ({"stage_to": "/tmp", "stage_command": "cp '{source} {target}"}, "close the quotation"),
    ],
)  # fmt: skip
def test_an_incomplete_command_is_refused(data, message):
    with pytest.raises(ValidationError) as error:
        Run.model_validate({"data": data})
    assert message in str(error.value)
