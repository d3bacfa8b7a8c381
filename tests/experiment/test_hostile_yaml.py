"""Hostile but legal YAML is refused with the file and the line, before it costs much time or memory.

A file that is read nevertheless needs hours or the whole memory: the time-out of the test fails it.
"""

import pytest

from nnlo_lib.compat.importers.dinno.study import translate_study
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
HOSTILE = {
    "billion laughs": (laughs(7, "list"), "5: invalid YAML: more than 20,000 keys and values"),
    "billion laughs of merge keys": (laughs(7, "merge"), "5: invalid YAML: more than 20,000 keys and values"),
    "copies of a long text": (
        f"name: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 5000)}]",
        "2: invalid YAML: more than 10,000,000 characters",
    ),
    "list inside itself": ("name: &a [*a]", "1: invalid YAML: the alias *a is inside the mapping or list &a; remove the alias"),
    "mapping inside itself": ("name: x\ntrain: &a\n  b: {c: *a}", "3: invalid YAML: the alias *a is inside"),
    "merge of itself": ("train: &a\n  <<: *a", "2: invalid YAML: the alias *a is inside"),
    "5000 lists": ("name: " + "[" * 5000 + "]" * 5000, "1: invalid YAML: more than 50 nested levels"),
    "5000 mappings": ("name: " + "{a: " * 5000 + "1" + "}" * 5000, "1: invalid YAML: more than 50 nested levels"),
    "1000 indented mappings": ("\n".join(" " * i + "a:" for i in range(1000)), "50: invalid YAML: more than 50 nested levels"),
    "5000 dashes": ("name:\n " + "- " * 5000 + "1", "2: invalid YAML: more than 50 nested levels"),
    "5000 levels of aliases": (ALIASES, "2: invalid YAML: more than 50 nested levels"),
    "100000 keys": ("\n".join(f"k{i}: {i}" for i in range(100_000)), "10001: invalid YAML: more than 20,000 keys and values"),
    "5000 misspelt keys": ("train:\n" + "\n".join(f"  epoch{i}: 1" for i in range(5000)), "2: train.epoch0: unknown key 'epoch0'"),
    "1 MB of text": (f"name: x\nmodel: {{name: {'x' * 1_000_000}}}", "2: model.name: unknown model 'xxx"),
    "1 MB of digits": ("seeds: [1]\nname: " + "1" * 1_000_000, "2: name: must consist of up to 200 letters"),
    "1 MB in base 60": ("train: {epochs: 1" + ":59" * 330_000 + "}", "1: train.epochs: "),
    "1 MB tagged as a number": (
        "train:\n  epochs: !!int 1" + ":59" * 330_000,
        "2: invalid YAML: more than 1,000 characters in a number",
    ),
    "3 MB": ("name: x\n#" + "x" * 3_000_000, "1: larger than 2,000,000 bytes"),
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
    "inside itself": ("name=&a [*a]", "the alias *a is inside"),
    "5000 levels": ("name=" + "[" * 5000, "more than 50 nested levels"),
    "laughs": (
        "x={a: &a [1,1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b],"
        " d: &d [*c,*c,*c,*c,*c,*c,*c,*c], e: [*d,*d,*d,*d,*d,*d,*d,*d]}",
        "more than 20,000 keys and values",
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
    with pytest.raises(UserError, match=r"study\.yaml:5: invalid YAML: more than 20,000 keys"):
        translate_study(tmp_path / "study.yaml")


def test_aliases_and_merge_keys_within_the_limits_are_values(tmp_path):
    text = "runs:\n  a: &a {train: {epochs: 2}}\n  b:\n    <<: *a\n    model: {name: simplecnn}\n  c: *a\n"
    (tmp_path / "mine.yaml").write_text(text)
    runs = load_experiment(tmp_path / "mine.yaml").runs
    assert runs == {"a": runs["a"], "b": runs["a"] | {"model": {"name": "simplecnn"}}, "c": runs["a"]}
    assert runs["a"] == {"train": {"epochs": 2}}


def test_settings_that_are_nested_too_deeply_in_python_are_refused():
    settings: dict[str, object] = {}
    for _ in range(10_000):
        settings = {"model": settings}
    with pytest.raises(UserError, match="experiment: more than 50 nested levels"):
        experiment_from_settings(settings)
