"""Profiles cover the requested steps and contain the functions and operators of these steps."""

import json
import pstats

import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate

from nnlo_lib.config import Run


def profiled(folder, small_store, profile: object, **settings: object) -> list[str]:
    task = simulate(watched(folder, small_store, {"profile": profile}, **settings))
    found = sorted(path.name for path in task.folder.glob("profile-*"))
    assert set(found) <= json.loads((task.folder / "summary.json").read_text())["outputs"].keys()
    return found


def calls(path, function: str) -> int:
    """Return the number of calls of a function in a pstats file."""
    stats = pstats.Stats(str(path)).stats
    return sum(count for (_, _, name), (_, count, *_) in stats.items() if name == function)


@pytest.mark.parametrize(("first", "steps", "done"), [(3, 4, 4), (25, 10, 3)])
def test_cprofile_covers_the_steps_asked_for(tmp_path, small_store, first, steps, done):
    """The training has 27 steps, so a profile of 10 steps from step 25 ends at step 27."""
    wish = {"tool": "cprofile", "first": first, "steps": steps}
    stem = f"profile-cprofile-rank-0-steps-{first}-{first + done - 1}"
    assert profiled(tmp_path, small_store, wish) == [f"{stem}.prof", f"{stem}.txt"]
    assert calls(tmp_path / f"{stem}.prof", "_step") == done
    assert calls(tmp_path / f"{stem}.prof", "backward") >= done
    assert "backward" in (tmp_path / f"{stem}.txt").read_text()


def test_torch_counts_the_operators_of_the_steps(tmp_path, small_store):
    wish = {"tool": "torch", "first": 11, "steps": 6}
    stem = "profile-torch-rank-0-steps-11-16"
    assert profiled(tmp_path, small_store, wish, model={"name": "simplemlp"}) == [
        f"{stem}.json",
        f"{stem}.txt",
    ]
    events = json.loads((tmp_path / f"{stem}.json").read_text())["traceEvents"]
    products = [each for each in events if each.get("name") == "aten::linear"]
    assert len(products) == 6 * 4  # simplemlp has 4 linear layers
    assert "aten::addmm" in (tmp_path / f"{stem}.txt").read_text()


def test_a_stop_in_between_leaves_two_parts(tmp_path, small_store):
    wish = {"profile": {"tool": "cprofile", "first": 2, "steps": 20}}
    task = watched(tmp_path, small_store, wish, checkpoint={"every": "1 step"})
    simulate(task, 12)
    found = sorted(path.stem for path in tmp_path.glob("profile-*.prof"))
    (first, last), (again, end) = sorted([int(step) for step in stem.split("-")[-2:]] for stem in found)
    assert (first, again, end) == (2, last + 1, 21)


def test_what_cannot_be_profiled_is_refused():
    assert Run.model_validate({"observe": {"profile": "cprofile"}}).observe.profile.tool == "cprofile"
    with pytest.raises(ValueError, match="rank 1 does not exist"):
        Run.model_validate({"parallel": {"ranks": 1}, "observe": {"profile": {"rank": 1}}})
    simulated = {"ranks": 2, "transport": "simulated"}
    with pytest.raises(ValueError, match="cprofile cannot distinguish simulated ranks"):
        Run.model_validate({"parallel": simulated, "observe": {"profile": "cprofile"}})
    assert Run.model_validate({"parallel": simulated, "observe": {"profile": "torch"}})
