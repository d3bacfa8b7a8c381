"""Hostile but legal YAML is refused with the file and the line, before it costs much time or memory.

A file that is read nevertheless needs hours or the whole memory: the time-out of the test fails it.
"""

import pytest

from nnlo_lib.compat.importers.dinno import translate_study
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings, load_experiment


def laughs(levels: int, form: str) -> str:
    """Return a text in which each level contains the level below ten times."""
    lines = ["a0: &a0 {x: ha}" if form == "merge" else "a0: &a0 [ha, ha]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        value = f"{{<<: [{inner}]}}" if form == "merge" else f"[{inner}]"
        lines.append(f"a{level}: &a{level} {value}")
    return "\n".join(lines)


# Each alias is 40 levels deep, and is at the bottom of the next one.
ALIASES = "\n".join(f"a{i}: &a{i} {'[' * 40}{f'*a{i - 1}' if i else ''}{']' * 40}" for i in range(125))
SIZE, LEVELS = "invalid YAML: more than 500,000 characters", "invalid YAML: more than 50 nested levels"
HOSTILE = {
    "billion laughs": (laughs(7, "list"), f"1: {SIZE}"),
    "billion laughs of merge keys": (laughs(7, "merge"), f"1: {SIZE}"),
    "copies of a long text": (f"name: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 5000)}]", f"1: {SIZE}"),
    "list inside itself": ("name: &a [*a]", f"1: {LEVELS}"),
    "merge of itself": ("name: x\ntrain: &a\n  <<: *a", f"3: {LEVELS}"),
    "5000 lists": ("name: " + "[" * 5000 + "]" * 5000, f"1: {LEVELS}"),
    "200 mappings": ("name: " + "{a: " * 200 + "1" + "}" * 200, f"1: {LEVELS}"),
    "5000 dashes": ("name:\n " + "- " * 5000 + "1", f"1: {LEVELS}"),
    "5000 levels of aliases": (ALIASES, f"1: {LEVELS}"),
    "5000 misspelt keys": ("train:\n" + "\n".join(f"  epoch{i}: 1" for i in range(5000)), "2: train.epoch0: unknown key 'epoch0'"),
    "much text": (f"name: x\nmodel: {{name: {'x' * 490_000}}}", "2: model.name: unknown model 'xxx"),
    "many digits": ("seeds: [1]\nname: " + "1" * 490_000, "2: name: must consist of up to 200 letters"),
    "base 60": ("train: {epochs: 1" + ":59" * 160_000 + "}", "1: train.epochs: "),
    "base 60 tagged as a number": ("train:\n  epochs: !!int 1" + ":59" * 160_000, "1: invalid YAML: "),
    "3 MB": ("name: x\n#" + "x" * 3_000_000, "1: larger than 500,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused(tmp_path, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        load_experiment("mine.yaml")
    message = str(error.value).removeprefix("the experiment cannot run\n  ")
    assert message.startswith(f"mine.yaml:{sentence}"), message[:300]


OVERRIDES = {
    "inside itself": ("name=&a [*a]", LEVELS),
    "5000 levels": ("name=" + "[" * 5000, LEVELS),
    "laughs": (
        "x={a: &a [1,1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b],"
        " d: &d [*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d], f: [*e,*e,*e,*e,*e,*e,*e,*e]}",
        SIZE,
    ),
    "digits": ("train.epochs=" + "1" * 100_000, "train.epochs: "),
}


@pytest.mark.parametrize(("change", "sentence"), OVERRIDES.values(), ids=OVERRIDES)
def test_a_hostile_override_is_refused(tmp_path, change, sentence):
    (tmp_path / "mine.yaml").write_text("name: x")
    with pytest.raises(UserError) as error:
        load_experiment(tmp_path / "mine.yaml", [change])
    assert sentence in str(error.value)
    assert f"--set {change[:20]}" in str(error.value)


def test_a_hostile_study_of_dinno_is_refused(tmp_path):
    (tmp_path / "study.yaml").write_text(laughs(7, "list"))
    with pytest.raises(UserError, match=r"study\.yaml:1: " + SIZE):
        translate_study(tmp_path / "study.yaml")


def test_settings_that_are_nested_too_deeply_in_python_are_refused():
    settings: dict[str, object] = {}
    for _ in range(10_000):
        settings = {"model": settings}
    with pytest.raises(UserError, match="experiment: more than 50 nested levels"):
        experiment_from_settings(settings)
