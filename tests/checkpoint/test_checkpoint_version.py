"""A later nnlo resumes from a checkpoint or refuses it.

These tests fail if content or meaning of checkpoints change without a new CHECKPOINT_VERSION.
"""

import json
from dataclasses import fields

import pytest
from helpers.algorithm_trainings import manifest
from helpers.checkpoint_layout import CASES, PINNED, broken, defaults, state

from nnlo_lib.checkpoint.checkpoint_manifest import CHECKPOINT_VERSION, CheckpointManifest
from nnlo_lib.config import Run

__all__ = ["manifest"]
LAYOUT = json.loads(PINNED.read_text())
RAISE = "raise CHECKPOINT_VERSION in nnlo_lib/checkpoint/checkpoint_manifest.py, then: PYTHONPATH=tests python -m helpers.checkpoint_layout"
ADD = "PYTHONPATH=tests python -m helpers.checkpoint_layout; if it changes what runs do that do not set it, raise CHECKPOINT_VERSION before"


def test_the_version_is_the_one_that_was_written_down():
    assert LAYOUT["version"] == CHECKPOINT_VERSION, ADD


def test_a_manifest_has_the_same_keys():
    assert sorted(field.name for field in fields(CheckpointManifest)) == LAYOUT["manifest"], RAISE


def test_every_default_means_what_it_meant():
    """The fingerprint of a run contains only settings that differ from the defaults, so a changed default needs a new version."""
    now, then = dict(defaults(Run, set())), LAYOUT["defaults"]
    assert {key: now.get(key, "gone") for key in then} == then, RAISE
    assert now.keys() == then.keys(), ADD


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_saves_the_same(tmp_path, manifest, case):
    assert state(tmp_path / "job", manifest, case) == LAYOUT["state"].get(case), RAISE


def test_only_what_is_new_needs_no_other_version():
    new = LAYOUT | {"defaults": LAYOUT["defaults"] | {"Train.new": 1}}
    assert broken(LAYOUT, new) == []
    assert broken(new, LAYOUT) == ["Train.new"]
    other = LAYOUT | {"state": LAYOUT["state"] | {"dsgt": []}, "manifest": []}
    assert broken(LAYOUT, other) == ["state of dsgt", "manifest"]
