"""The environments for conda and Apptainer name files that the clone, the wheel and `make wheelhouse` have."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from helpers.repository_copy import REPOSITORY
from pip._internal.network.session import PipSession
from pip._internal.req.req_file import parse_requirements

from nnlo_lib.core import installation

ENVIRONMENTS = REPOSITORY / "workflow/envs"


@pytest.mark.parametrize("kind", ["clone", "wheel"])
def test_pip_finds_what_the_conda_environment_names(kind, tmp_path, monkeypatch):
    """conda writes the lines beside its copy of the file, so that relative paths would be those of the copy."""
    lines = yaml.safe_load((ENVIRONMENTS / "nnlo.yaml").read_text())["dependencies"][-1]["pip"]
    copy = tmp_path / "condaenv.requirements.txt"
    copy.write_text("\n".join(lines))
    if kind == "wheel":
        site = tmp_path / "site packages/nnlo_project"
        site.mkdir(parents=True)
        (site / "requirements.lock").write_bytes((REPOSITORY / "requirements.lock").read_bytes())
        monkeypatch.setattr(installation, "PROJECT", site)
    for name, value in installation.conda_variables().items():
        monkeypatch.setenv(name, value)
    *packages, nnlo = parse_requirements(str(copy), PipSession())
    assert any(each.requirement.startswith("torch==") for each in packages)
    assert nnlo.is_editable == (kind == "clone")
    assert nnlo.requirement == (f"nnlo=={installation.__version__}" if kind == "wheel" else str(REPOSITORY))


def test_the_image_installs_the_wheels_of_make_wheelhouse(tmp_path):
    """A script in place of pip: what %post calls, with the paths of %files; Apptainer itself is not installed here."""
    text = (ENVIRONMENTS / "nnlo.def").read_text()
    sections = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", text, re.M | re.S))
    source, target = sections["files"].split()
    assert f"--wheel-dir {source} ." in (REPOSITORY / "Makefile").read_text()
    image = tmp_path / "image"
    (image / target.lstrip("/")).mkdir(parents=True)
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@" > pip.txt\n')
    (tmp_path / "pip").chmod(0o755)
    commands = sections["post"].replace(target, str(image) + target)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, env={"PATH": path}, check=True)
    assert (tmp_path / "pip.txt").read_text().split()[-3:] == [
        "--find-links",
        str(image) + target,
        "nnlo[mpich]",
    ]
    assert not Path(str(image) + target).exists()
