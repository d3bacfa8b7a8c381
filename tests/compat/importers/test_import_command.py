"""The YAML of an import has every given setting, either as a key or as a comment; the command line of `nnlo import`."""

import pytest
from helpers.nnlo_command import nnlo

from nnlo_lib.compat.importers.draft import ExperimentDraft, render_import
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.yaml_source import parse_yaml


def read(draft: ExperimentDraft) -> tuple[Experiment, list[str]]:
    text = render_import(draft, "command").text
    lines = [line.strip() for line in text.splitlines()]
    return Experiment.model_validate(parse_yaml(text, str)[0] or {}), lines


@pytest.fixture
def draft():
    return ExperimentDraft("title")


def test_a_setting_that_nnlo_lacks_is_a_comment_with_its_key(draft):
    draft.set("train.epochs", 3, "--epochs 3")
    draft.set("train.telepathy", {"far": True}, "--telepathy", "it is magic")
    experiment, lines = read(draft)
    assert experiment.train.epochs == 3
    number = lines.index("# --telepathy: not translated because it is magic")
    assert lines[number + 1] == "# telepathy: {far: true}"


def test_only_settings_that_differ_from_the_defaults_are_live(draft):
    draft.set("train.batch_size", 32, "--batch 32")
    draft.set("train.optimizer", {"name": "adam", "lr": 0.003}, "--optimizer adam")
    draft.set("algorithm", {"name": "easgd", "sync_every": 10, "elastic_force": 0.5}, "--mode easgd")
    experiment, lines = read(draft)
    assert experiment.algorithm.elastic_force == 0.5
    assert [line for line in lines if not line.startswith("#")] == [
        "algorithm: {name: easgd, elastic_force: 0.5}  # --mode easgd"
    ]
    assert any("--batch 32 (train.batch_size)" in line for line in lines)


def test_every_option_is_on_the_page(draft):
    table = {
        "a": OptionSpec(int), "b": flag_option("it is so"), "c": flag_option(missing="it is magic"),
        "d": OptionSpec(key="name", to=str.lower),
    }  # fmt: skip
    draft.translate(ParsedOptions("prog", table, ["--a", "3", "--b", "--c", "--d=X"]))
    experiment, lines = read(draft)
    assert experiment.name == "x"
    assert "#   - Without effect, or equal to the defaults: --a 3" in lines
    assert "#   - --b: it is so" in lines
    assert "#   - --c: not translated because it is magic" in lines


def test_invalid_settings_are_refused(draft):
    draft.set("train.epochs", 0, "--epochs 0")
    sentence = r"the imported experiment is not valid: train.epochs: .* greater than or equal to 1"
    with pytest.raises(UserError, match=sentence):
        render_import(draft, "command")


COMMAND = "mpirun -np 3 TrainingDriver --model cifar10 --loss mse --epochs 7"
LOST = "1 of 4 options was not translated: --copy-command cp"


@pytest.mark.parametrize(
    ("words", "status", "printed", "logged"),
    [
        ([COMMAND], 0, "\n  epochs: 7  # --epochs 7\n", ""),
        (["--", *COMMAND.split()], 0, "\n  epochs: 7  # --epochs 7\n", ""),
        ([*COMMAND.split(), "--early", "val_loss,~<,4"], 0, "--early 'val_loss,~<,4'\n", ""),
        (["mpirun -np 3 TrainingDriver --model mnist --loss mse --copy-command cp"], 3, f"# {LOST}\n", LOST),
        ([], 2, "", "nnlo: error: COMMAND: missing"),
        (["TrainingDriver --epochz 3"], 2, "", "nnlo: error: TrainingDriver: unknown option --epochz; did you mean 'epochs'?"),
    ],
)  # fmt: skip
def test_statuses(words, status, printed, logged):
    done = nnlo("import", *words)
    assert done.returncode == status, done.stderr
    assert printed in done.stdout
    assert logged in done.stderr
    assert bool(done.stdout) == (status != 2)
