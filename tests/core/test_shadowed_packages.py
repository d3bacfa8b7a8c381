"""Packages of PYTHONPATH and of other folders in place of the environment's: one sentence, in all commands alike."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nnlo_lib.config import Experiment
from nnlo_lib.core import shadowed_packages as shadowed
from nnlo_lib.core.shadowed_packages import PACKAGES, shadowed_packages
from nnlo_lib.launch.launcher_command import rank_python

ROOT = Path(__file__).parents[2]
COMMANDS = (
    ["-P", "-m", "nnlo_lib.cli", "check", "x.yaml"], ["-P", "-m", "nnlo_lib.cli", "run", "x.yaml"], ["-P", "-m", "nnlo_lib.cli", "doctor"],
    ["-P", "-m", "nnlo_lib.train.rank", "{}"], [ROOT / "scripts" / "train.py"], ["-P", "-c", "import nnlo_lib"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def only_the_environment(monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(
        sys, "path", [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix, str(ROOT)))]
    )


def package(folder, name, suffix="/__init__.py"):
    path = folder / f"{name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("raise RuntimeError('the wrong package was imported')\n")
    return folder


@pytest.mark.processes
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(str(word) for word in words[-2:]))
def test_a_command_says_it_and_exits_with_2(words, tmp_path):
    package(tmp_path / "mod", "numpy")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "mod")}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    sentence = f"numpy comes from {tmp_path}/mod (PYTHONPATH) in place of the environment {sys.prefix}; unset PYTHONPATH"
    assert (done.returncode, done.stderr, done.stdout) == (2, f"nnlo: error: {sentence}\n", "")


@pytest.mark.parametrize("suffix", ["/__init__.py", ".py"])
@pytest.mark.parametrize(
    "name", ["torch", "numpy", "snakemake", "yaml", "h5py", "mpi4py", "typing_extensions"]
)
def test_a_package_or_a_file_of_its_name(name, suffix, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(package(tmp_path, name, suffix)), *sys.path])
    assert shadowed_packages() == (
        f"{name} comes from {tmp_path} in place of the environment {sys.prefix}; rename {tmp_path}/{name}* or work in another folder"
    )
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{tmp_path}:")
    assert f"(PYTHONPATH) in place of the environment {sys.prefix}; unset PYTHONPATH" in shadowed_packages()


def test_the_folder_in_which_jobs_start_python(tmp_path):
    package(package(tmp_path, "yaml", ".py"), "torch")
    assert shadowed_packages() == ""
    assert shadowed_packages(str(tmp_path)).startswith(f"torch, yaml come from {tmp_path} ")


def test_what_replaces_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/nowhere", *sys.path])
    for name in ("data", "model", "nnlo_plugins"):
        package(tmp_path, name, ".py")
    (tmp_path / "torch").mkdir()  # without __init__.py, Python prefers the package of the environment
    # A module of the site may offer what the environment lacks; and the same file by another path is no other package.
    monkeypatch.setattr(shadowed, "PACKAGES", PACKAGES | {"only_of_the_site"})
    package(tmp_path, "only_of_the_site")
    numpy = next(Path(path, "numpy") for path in sys.path if Path(path, "numpy").is_dir())
    (tmp_path / "numpy").symlink_to(numpy)
    assert shadowed_packages() == ""
    package(tmp_path, "h5py")
    assert shadowed_packages() != ""
    (tmp_path / "nnlo-0.2.0.dist-info").mkdir()  # pip install --target
    assert shadowed_packages() == ""


def test_packages_of_the_user_site(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(package(tmp_path, "torch")), *sys.path])
    monkeypatch.setattr(shadowed.site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(shadowed.site, "getusersitepackages", lambda: str(tmp_path))
    assert shadowed_packages().endswith(
        f"(user site) in place of the environment {sys.prefix}; export PYTHONNOUSERSITE=1"
    )


@pytest.mark.processes
def test_ranks_do_not_import_files_of_the_working_directory(tmp_path):
    package(tmp_path, "torch", ".py")
    run = Experiment.model_validate(
        {"name": "t", "data": {"dataset": "digits"}, "model": {"name": "simplemlp"}}
    )
    program = "import importlib.util; print(importlib.util.find_spec('torch').origin)"
    found = subprocess.check_output([*rank_python(run), "-c", program], cwd=tmp_path, text=True)
    assert found.strip().endswith("/torch/__init__.py")


def test_each_requirement_is_looked_for():
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = {canonicalize_name(Requirement(text).name) for text in required} - {
        "mpich",
        "protobuf",
    }  # a program; a namespace
    names = {each for name, found in packages_distributions().items() if name in PACKAGES for each in found}
    assert wanted - {canonicalize_name(name) for name in names} == set()
