"""A later nnlo resumes from a checkpoint or refuses it.

These tests fail if content or meaning of checkpoints change without a new CHECKPOINT_VERSION.
"""

import json

import pytest
from helpers.algorithm_trainings import manifest
from helpers.checkpoint_layout import CASES, PINNED, defaults, manifest_keys, state

from nnlo_lib.checkpoint.checkpoint_manifest import CHECKPOINT_VERSION
from nnlo_lib.config import Run

__all__ = ["manifest"]
LAYOUT = json.loads(PINNED.read_text())
WRITE = "PYTHONPATH=tests python -m helpers.checkpoint_layout"
RAISE = f"raise CHECKPOINT_VERSION in nnlo_lib/checkpoint/checkpoint_manifest.py, then: {WRITE}"
ADD = f"{WRITE}; if it changes what runs do that do not set it, raise CHECKPOINT_VERSION before"


def test_version_and_keys_of_a_manifest_are_pinned():
    assert LAYOUT["version"] == CHECKPOINT_VERSION, ADD
    assert manifest_keys() == LAYOUT["manifest"], RAISE


def test_every_default_has_its_pinned_meaning():
    """The fingerprint of a run contains only settings that differ from the defaults, so a changed default needs a new version."""
    now, pinned = dict(defaults(Run, set())), LAYOUT["defaults"]
    assert {key: now.get(key, "gone") for key in pinned} == pinned, RAISE
    assert now.keys() == pinned.keys(), ADD


# Variants of an algorithm, after a comma, are left to the exhaustive tests.
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.exhaustive] if "," in case else []) for case in CASES]
)
def test_every_algorithm_saves_its_pinned_state(tmp_path, manifest, case):
    assert state(tmp_path / "job", manifest, case) == LAYOUT["state"].get(case), RAISE
