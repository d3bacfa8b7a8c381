"""Requests beside measured use: sums over processes, and the settings that would have been enough."""

import pytest
from helpers.synthetic_runs import Fake, change_json

from nnlo_lib.config import Run
from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.resource_use import ResourceUse, total_use

START, END = "2026-01-02T03:04:00+00:00", "2026-01-02T04:04:00+00:00"


def test_simulated_ranks_share_the_memory_of_their_process():
    def rank(host, process, memory, gpu=0):
        return {
            "host": host, "process": process, "memory_bytes": memory, "cpu_seconds": 3.0, "seconds": 2.0 * process,
            "gpu_memory_bytes": gpu,
        }  # fmt: skip

    # Two ranks in one process, and a process of the same number on another host.
    ranks = [rank("a", 1, 10), rank("a", 1, 10), rank("a", 2, 7, gpu=5), rank("b", 1, 4, gpu=6)]
    assert total_use(ranks) == {
        "memory_bytes": 21,
        "cpu_seconds": 9.0,
        "seconds": 4.0,
        "gpu_memory_bytes": 6,
    }


@pytest.mark.parametrize(
    ("memory_mb", "minutes", "asked", "advice"),
    [
        (340, 3, {"mem_mb": 4000, "runtime": 60}, ["mem_mb: 700", "runtime: 10"]),
        (340, 3, {"mem_mb": 1000, "runtime": 15}, []),  # near enough
        (950, 3, {"mem_mb": 1000, "runtime": 15}, ["mem_mb: 1500"]),  # the next one may be killed
        (500, 58, {"mem_mb": 1000, "runtime": 60}, ["runtime: 95"]),
    ],
)
def test_a_request_far_from_the_use_gets_an_advice(tmp_path, memory_mb, minutes, asked, advice):
    fake = Fake(tmp_path / "results")
    used = {"memory_bytes": memory_mb * 1e6, "cpu_seconds": 30.0, "seconds": 20.0, "gpu_memory_bytes": 0}
    for seed, factor in ((1, 1.0), (2, 0.5)):  # the larger use counts
        folder = fake.job(seed=seed)
        change_json(folder / "summary.json", used=used | {"memory_bytes": factor * used["memory_bytes"]})
        (folder / "state").mkdir()
        attempt = Attempt(1, START, END, factor * 60 * minutes, "node0", None, "finished", None, 0, 9, 9, 2)
        append_attempt(folder / "state", attempt)
    use = ResourceUse.of(
        [FinishedRun(folder) for folder in fake.folders], Run.model_validate({"resources": asked})
    )
    assert use.advice == advice
    assert f"used {memory_mb} MB of {asked['mem_mb']:,} MB" in use.sentence
    assert "1.5 of 2 cores" in use.sentence


def test_trainings_without_measurements_have_no_use(tmp_path):
    folder = Fake(tmp_path / "results").job()
    change_json(folder / "summary.json", used=None)
    assert ResourceUse.of([FinishedRun(folder)]) is None
