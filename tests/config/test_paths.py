"""File names of a run on disk; tests/conventions checks that no other module spells them."""

from pathlib import Path

from nnlo_lib.config import JobSpec
from nnlo_lib.config.paths import ExperimentPaths, RunPaths, StatePaths


def test_names_on_disk():
    experiment = ExperimentPaths("mine")
    job = experiment.job(JobSpec(run="four", seed=1, fold=2))
    assert job.state.history == Path("results/mine/four/seed-1/fold-2/state/history.jsonl")
    assert job.history == Path("results/mine/four/seed-1/fold-2/history.csv")
    assert experiment.run_config("four") == Path("results/mine/four/config.json")
    assert experiment.search.result(7, 0, 9) == Path("results/mine/search/trials/0007/fold-0/epochs-9.json")
    assert experiment.search.trial(7) == Path("results/mine/search/trials/0007.json")
    assert experiment.search.state.pool_failures == Path("results/mine/search/state/deaths.jsonl")


def test_published_outputs_are_in_the_order_of_the_summary():
    assert [path.name for path in RunPaths(Path()).outputs] == [
        "model.safetensors", "partition.npz", "history.csv", "nodes.csv", "validations.csv", "samples.png",
        "nnlo_history.json", "trace.json", "log.txt", "monitor.csv", "consensus.npz", "validation_metrics.npz", "maps.npz",
    ]  # fmt: skip


def test_archives_are_numbered(tmp_path):
    paths = StatePaths(tmp_path)
    assert paths.next_archive.name == "former-1"
    paths.next_archive.mkdir()
    assert paths.next_archive.name == "former-2"
