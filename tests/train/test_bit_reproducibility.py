"""The same experiment gives bit-identical results with simulated and MPI ranks, interrupted or not."""

import signal

import pytest
import torch
from helpers.training_process import training, under_way, wait
from safetensors.torch import load

SYNCHRONOUS = {
    "allreduce-2": {"algorithm": "allreduce", "ranks": 2},
    "allreduce-4": {"algorithm": "allreduce", "ranks": 4},
    "allreduce-3-buckets": {"algorithm": {"name": "allreduce", "bucket_mb": 0.01}, "ranks": 3},
    "average-3": {"algorithm": {"name": "average", "sync_every": 7}, "ranks": 3},
    "diloco-2": {"algorithm": {"name": "diloco", "sync_every": 30}, "ranks": 2},
    "downpour-3": {"algorithm": {"name": "downpour", "synchronous": True}, "ranks": 3},
    "downpour-5-grouped": {
        "algorithm": {"name": "downpour", "synchronous": True, "sync_every": 3},
        "ranks": 5,
        "parallel": {"processes_per_worker": 2},
    },
}
DISTURBED = {
    "augmented": {
        "data": {"augment": {"flip": 0.5, "pad": 1, "window": 6}, "crop": 7, "normalize": "standard"}
    },
    "by class": {"data": {"partition": {"name": "by_class"}, "augment": {"pad": 1}}},
    "few, unequal": {"data": {"partition": {"name": "dirichlet", "alpha": 0.1}}},
    "dinno": {"algorithm": {"name": "dinno", "primal_iterations": 3}, "topology": {"name": "path"}},
    "gosgd": {"algorithm": {"name": "gosgd", "synchronous": True, "probability": 0.3}},
    "easgd": {"algorithm": {"name": "easgd", "synchronous": True, "sync_every": 3}},
}


@pytest.mark.processes
@pytest.mark.parametrize("settings", DISTURBED.values(), ids=DISTURBED.keys())
def test_interrupted_on_real_ranks_equals_undisturbed_on_simulated_ones(tmp_path, settings):
    parallel = {"ranks": 3, "transport": "simulated"}
    common = {**settings, "ranks": 3, "train": {"epochs": 12, "batch_size": 8}}
    real, virtual = (
        training(tmp_path / "real", **common),
        training(tmp_path / "virtual", **common, parallel=parallel),
    )
    with under_way(real, 2) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
        assert process.returncode == 75
    real.finish()
    virtual.finish()
    assert real.weights == virtual.weights
    assert real.history == virtual.history


@pytest.mark.processes
@pytest.mark.parametrize("settings", SYNCHRONOUS.values(), ids=SYNCHRONOUS.keys())
def test_simulated_equals_mpi(tmp_path, settings):
    runs = []
    for transport in ("mpi", "simulated"):
        parallel = {**settings.get("parallel", {}), "ranks": settings["ranks"], "transport": transport}
        runs.append(training(tmp_path / transport, settings["algorithm"], parallel=parallel))
        runs[-1].finish()
    assert runs[0].weights == runs[1].weights
    assert runs[0].history == runs[1].history
    assert runs[0].bytes_sent == runs[1].bytes_sent


@pytest.mark.processes
def test_asynchronous_simulation_replays(tmp_path):
    parallel = {"ranks": 4, "transport": "simulated"}
    runs = [training(tmp_path / name, "downpour", parallel=parallel) for name in ("first", "second")]
    for run in runs:
        run.finish()
    assert runs[0].weights == runs[1].weights


@pytest.mark.processes
@pytest.mark.parametrize("ranks", [2, 4])
def test_allreduce_equals_one_process_with_the_combined_batch(tmp_path, ranks):
    """The results agree although the last of the global batches of 64 has 18 of the 1,298 samples.

    Without dropout both trainings use the same network.
    """
    common = {"model": {"name": "simplecnn", "args": {"dropout": 0.0}}}
    many = training(tmp_path / "many", ranks=ranks, train={"batch_size": 64 // ranks}, **common)
    one = training(tmp_path / "one", ranks=1, train={"batch_size": 64}, **common)
    many.finish()
    one.finish()
    ours, reference = load(many.weights), load(one.weights)
    for name, tensor in reference.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.processes
def test_a_last_batch_of_one_sample_leaves_nobody_waiting(tmp_path):
    run = training(tmp_path, ranks=4, train={"epochs": 1, "batch_size": 324}, data={"validation": 0.1005})
    run.finish()  # 1,297 samples in global batches of 1,296: only one rank has a sample in the last step
    assert run.history[0]["samples"] == 1297
    assert run.history[0]["step"] == 2


STOPS = {
    ("allreduce-2", "launcher"), ("average-3", "launcher"), ("diloco-2", "one rank"), ("downpour-3", "one rank"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "whom"),
    [
        pytest.param(
            SYNCHRONOUS[name], whom, id=f"{name}, {whom}",
            marks=[] if (name, whom) in STOPS else pytest.mark.nightly,
        )
        for name in ("allreduce-2", "average-3", "diloco-2", "downpour-3")
        for whom in ("launcher", "one rank")
    ],
)  # fmt: skip
def test_a_stopped_training_resumes_to_the_same_bits(tmp_path, settings, whom):
    train = {"epochs": 20}
    disturbed = training(tmp_path / "disturbed", **settings, train=train)
    undisturbed = training(tmp_path / "undisturbed", **settings, train=train)
    for epochs in (3, 9):
        with under_way(disturbed, epochs) as process:
            if whom == "launcher":
                process.send_signal(signal.SIGTERM)
                said, _ = process.communicate(timeout=200)
                assert process.returncode == 75, said
                assert "stopped and saved" in said
            else:
                signal_rank(disturbed.pid(1))
                process.communicate(timeout=200)
                assert process.returncode == 75
    disturbed.finish()
    undisturbed.finish()
    assert disturbed.weights == undisturbed.weights
    assert disturbed.history == undisturbed.history


def signal_rank(pid: int) -> None:
    import os

    os.kill(pid, signal.SIGUSR1)


@pytest.mark.processes
def test_more_epochs_go_on_from_the_last_checkpoint(tmp_path):
    training(tmp_path / "twice", train={"epochs": 2}).finish()
    longer = training(tmp_path / "twice", train={"epochs": 4})
    assert "resumed at epoch 2" in longer.finish()
    at_once = training(tmp_path / "once", train={"epochs": 4})
    at_once.finish()
    assert longer.weights == at_once.weights
    assert longer.history == at_once.history


@pytest.mark.processes
def test_nothing_waits_for_a_wish_to_stop_that_came_before_the_first_step(tmp_path):
    run = training(tmp_path, train={"epochs": 5})
    process = run.start()
    wait("the ranks are there", lambda: (run.job / "state/ranks/1").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=200)
    assert process.returncode in (75, 1, 143, -15)
