"""Paths that the command lines of a batch system's jobs would change are refused before the first submission."""

import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.nnlo_command import nnlo
from snakemake_interface_executor_plugins.utils import format_cli_arg

from nnlo_lib.cluster.submission import LSF_PATHS, SLURM_PATHS
from nnlo_lib.commands.inspect import _refuse_unquoted_paths
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

pytestmark = pytest.mark.processes

PLAIN = "/home/me/net_1.5-a"
NAMES = [
    "a b", "it's", "é", 'a"b', "a;b", "a&b", "(a)", "*", "$(echo x)", "$HOME", "`echo x`", "a\\b", "a\nb", "a'b\"c", "'a' b",
]  # fmt: skip


def workflow(
    folder=PLAIN, snakefile="Snakefile", experiment="x.yaml", input_file="net.py"
) -> SimpleNamespace:
    """Return a workflow of Snakemake with one job."""
    dag = SimpleNamespace(jobs=[SimpleNamespace(input=[input_file])])
    return SimpleNamespace(
        workdir_init=folder, main_snakefile=snakefile, overwrite_configfiles=[Path(experiment)], dag=dag
    )


def arrives(name: str, escape: str) -> bool:
    """Return True if a file name reaches a job: through the submitting shell, then through the shell of the job."""
    command = f"printf %s {format_cli_arg('', name)}".replace('"', escape)
    submitted = subprocess.run(f'printf %s "{command}"', shell=True, capture_output=True, text=True)
    return subprocess.run(submitted.stdout, shell=True, capture_output=True, text=True).stdout == name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("paths", "escape"), [(SLURM_PATHS, '\\"'), (LSF_PATHS, '"')])
def test_a_file_name_is_accepted_only_if_it_reaches_the_job(paths, escape, name):
    if paths.problem(workflow(input_file=name)) is None:
        assert arrives(name, escape)


@pytest.mark.parametrize("name", ["a b", "é", "a;b", "(a)", PLAIN])
@pytest.mark.parametrize("paths", [SLURM_PATHS, LSF_PATHS])
def test_usual_file_names_are_accepted(paths, name):
    assert paths.problem(workflow(snakefile=name, experiment=name, input_file=name)) is None


@pytest.mark.parametrize("name", NAMES)
def test_lsf_gets_only_folders_that_need_no_quotes(name):
    accepted = LSF_PATHS.problem(workflow(folder=name)) is None
    # shlex quotes letters outside of ASCII, which no shell changes.
    assert accepted == (shlex.quote(name.replace("é", "e")) == name.replace("é", "e"))


@pytest.mark.parametrize("which", ["folder", "snakefile", "experiment", "input_file"])
@pytest.mark.parametrize("paths", [SLURM_PATHS, LSF_PATHS])
def test_the_sentence_names_the_path_and_the_character(paths, which):
    problem = paths.problem(workflow(**{which: "/a/$(x)"}))
    assert problem is not None
    assert problem.startswith("/a/$(x): ")
    assert "with '$' in its path" in problem
    assert "rename or move it" in problem


def test_an_environment_in_a_folder_with_a_space_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my envs/bin/python")
    assert "a Python environment in a folder with ' ' in its path" in str(SLURM_PATHS.problem(workflow()))


def test_check_names_a_file_of_the_user_and_a_folder(tmp_path):
    (tmp_path / "b`x`.yaml").write_text("name: t\n")
    output = refused_check("b`x`.yaml", tmp_path)
    assert "b`x`.yaml: jobs of the batch system cannot use a file with" in output
    (folder := tmp_path / "a$x").mkdir()
    (folder / "x.yaml").write_text("name: t\n")
    output = refused_check("x.yaml", folder)
    assert f"{folder}: jobs of the batch system cannot use a working folder with '$'" in output
    (tmp_path / "n$t.py").write_text("from torch import nn\ndef get_model():\n    return nn.Flatten()\n")
    (tmp_path / "x.yaml").write_text("model: {name: n$t.py}\ndata: {dataset: digits}\n")
    with chdir(tmp_path):
        experiment = load_experiment("x.yaml")
        with pytest.raises(UserError, match=r"n\$t\.py: jobs of the batch system cannot use a file"):
            _refuse_unquoted_paths(experiment, "x.yaml")


def refused_check(name: str, folder: Path) -> str:
    """Return the error of `nnlo check`, which prints its summary before it looks at the site."""
    done = nnlo("check", name, "--profile", "slurm", folder=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr
