"""Every value in a command of a rule is quoted, and no run has the name of a file or folder of its experiment."""

import re
from pathlib import Path

import pytest
from helpers.repository_copy import REPOSITORY

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.workflow.plan import any_of, refuse_braces

RULES = sorted((REPOSITORY / "workflow").rglob("*.smk"))
TEXT = "\n".join(path.read_text() for path in [REPOSITORY / "workflow/Snakefile", *RULES])
# Lines of the directive `shell:` and of calls `shell(...)`, and the strings that both contain.
COMMANDS = re.compile(r'^( *)shell:\n((?:\1 .*\n)+)|shell\(\n((?: +f?".*\n)+)|^KEEP_LOG = (.*)', re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<!\{)\{(\w[\w.]*)(:?\w*)\}")
# Plan quotes the options, the Snakefile the path; KEEP_LOG is a part of the command.
QUOTED = {"params.options", "params.tasks", "KEEP_LOG", "SCRIPTS"}  # tasks: numbers only
SEARCH = {"space": {"train.optimizer.lr": [0.1, 0.2]}, "trials": 2}


def commands() -> list[str]:
    """Return the text of all commands of the workflow."""
    return ["".join(filter(None, found.groups()[1:])) for found in COMMANDS.finditer(TEXT)]


def test_every_placeholder_of_a_command_is_quoted():
    found = [placeholder for command in commands() for placeholder in PLACEHOLDER.findall(command)]
    assert len(commands()) == TEXT.count("shell:") + TEXT.count("shell(") + 1
    assert len(found) > 60
    assert [name for name, form in found if form != ":q" and name not in QUOTED] == []


def written_names() -> set[str]:
    """Return the names below results/<experiment>/ and logs/<experiment>/ that the rules spell."""
    return set(re.findall(r"(?:\{RESULTS\}|logs/\{EXPERIMENT\.name\})/(\w[\w.]*)", TEXT))


def refusal(run: str, **settings: object) -> str:
    """Return the sentence that refuses a run of an experiment, or an empty string."""
    try:
        experiment_from_settings({"runs": {run: {}}, **settings})
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(written_names()))
def test_a_run_cannot_have_the_name_of_a_file_of_its_experiment(name):
    assert f"runs.{name}: this name is reserved for " in refusal(name, search=SEARCH)


def test_the_rules_spell_the_files_of_an_experiment():
    files = {"summary.csv", "comparisons.csv", "report.html", "aggregate.log", "report.log"}
    assert written_names() == {*files, "search", "best"}
    assert {name for name in written_names() if not refusal(name)} == {"best"}


@pytest.mark.parametrize("name", [".workflow", "../x", "a/b", "a b", "", "{x}", "$(x)", "a\n"])
def test_a_name_of_a_run_and_of_an_experiment_has_no_special_characters(name):
    assert "runs" in refusal(name)
    assert "name" in refusal("a", name=name)


def test_a_wildcard_matches_only_the_names_themselves():
    pattern = re.compile(any_of(["a.b", "c-1"]))
    assert [name for name in ("a.b", "c-1", "a-b", "axb", "") if pattern.fullmatch(name)] == ["a.b", "c-1"]
    assert not re.fullmatch(any_of([]), "")


def test_an_input_file_with_braces_is_refused():
    refuse_braces(["a.yaml", "b c.py"])
    message = r"^\{x\}.yaml: Snakemake takes text in braces for a wildcard; rename"
    with pytest.raises(UserError, match=message):
        refuse_braces(["a.yaml", str(Path("{x}.yaml"))])
