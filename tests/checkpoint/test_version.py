"""A later nnlo goes on from a checkpoint or refuses it: whoever changes what it holds or means must raise VERSION."""

import json
from dataclasses import fields

import pytest
from checkpoint_layout import CASES, PINNED, broken, defaults, state
from every_algorithm import manifest

from nnlo_lib.checkpoint.manifest import VERSION, Manifest
from nnlo_lib.config import Run

__all__ = ["manifest"]
LAYOUT = json.loads(PINNED.read_text())
RAISE = "raise VERSION in nnlo_lib/checkpoint/manifest.py, then: python tests/checkpoint_layout.py"
ADD = "python tests/checkpoint_layout.py; if it changes what runs do that do not set it, raise VERSION before"


def test_the_version_is_the_one_that_was_written_down():
    assert LAYOUT["version"] == VERSION, ADD


def test_a_manifest_has_the_same_keys():
    assert sorted(field.name for field in fields(Manifest)) == LAYOUT["manifest"], RAISE


def test_every_default_means_what_it_meant():
    """A run's key tells only what differs from the defaults."""
    now, then = dict(defaults(Run, set())), LAYOUT["defaults"]
    assert {key: now.get(key, "gone") for key in then} == then, RAISE
    assert now.keys() == then.keys(), ADD


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_saves_the_same(tmp_path, manifest, case):
    assert state(tmp_path / "job", manifest, case) == LAYOUT["state"].get(case), RAISE


def test_only_what_is_new_needs_no_other_version():
    new = LAYOUT | {"defaults": LAYOUT["defaults"] | {"Train.new": 1}}
    assert broken(LAYOUT, new) == []
    assert broken(new, LAYOUT) == ["Train.new"]
    other = LAYOUT | {"state": LAYOUT["state"] | {"dsgt": []}, "manifest": []}
    assert broken(LAYOUT, other) == ["state of dsgt", "manifest"]
