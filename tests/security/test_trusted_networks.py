"""Networks of torch run their code only if the user trusts them; Snakemake runs code of its configuration files."""

import contextlib

import pytest
from helpers.hostile_files import exported_program, torchscript
from helpers.hostile_readers import network
from helpers.nnlo_command import nnlo
from snakemake.common.configfile import load_configfile

from nnlo_lib.config.model import ModelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment


@pytest.mark.parametrize(("name", "write"), [("net.pt2", exported_program), ("net.pt", torchscript)])
def test_the_code_of_a_trusted_network_runs(tmp_path, name, write):
    """Without this, the tests above would not notice that a newer torch makes the hostile files harmless."""
    write(tmp_path / name, tmp_path / "mark")
    with pytest.raises(UserError):
        network(tmp_path / name)
    assert not (tmp_path / "mark").exists()
    with contextlib.suppress(UserError):  # the sample inputs are not what torch expects
        network(tmp_path / name, trust=True)
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(("name", "write"), [("net.pt2", exported_program), ("net.pt", torchscript)])
def test_nnlo_model_runs_the_code_of_a_network_only_if_told(tmp_path, name, write):
    write(tmp_path / name, tmp_path / "mark")
    (tmp_path / "x.yaml").write_text(f"model: {{name: {name}}}")
    done = nnlo("model", "x.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert f"{name} was not read" in done.stderr
    assert "set model.trust: true (`nnlo model`: --trust)" in done.stderr
    assert not (tmp_path / "mark").exists()
    checked = nnlo("check", "x.yaml", folder=tmp_path)
    assert checked.returncode == 2
    assert f"x.yaml:1: model.name: {name} was not read" in checked.stderr
    assert not (tmp_path / "mark").exists()
    nnlo("model", "x.yaml", "--trust", folder=tmp_path)
    assert (tmp_path / "mark").exists()


def test_no_network_is_trusted_by_default():
    assert not ModelConfig().trust


def test_snakemake_runs_code_in_a_configuration_file_that_nnlo_refuses(tmp_path):
    """Snakemake reads the file before NNLO, with the template engine YTE."""
    mark = tmp_path / "mark"
    (tmp_path / "x.yaml").write_text(
        f"__use_yte__: true\nname: ?__import__('os').mkdir({str(mark)!r}) or 'x'\n"
    )
    with pytest.raises(UserError, match=r"x\.yaml:1: __use_yte__: unknown key"):
        load_experiment(tmp_path / "x.yaml")
    assert not mark.exists()
    load_configfile(tmp_path / "x.yaml")
    assert mark.exists()
