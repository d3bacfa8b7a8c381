"""Training samples in the memory of the device (data.placement: device) give the bits of samples on the host.

The processor stands in for a GPU here: tests/train/test_gpu_training.py compares both placements on a GPU.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import ASYNCHRONOUS, CALLS, task
from helpers.chaos_report import find_differences
from helpers.synthetic_store import handmade
from helpers.training_here import digits, simulate
from helpers.training_process import StopAfter
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.augment import Augment
from nnlo_lib.data.store.split import Split
from nnlo_lib.train import dataset
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.replica import resident_samples
from nnlo_lib.train.replica.recorded_passes import Recording
from nnlo_lib.train.replica.resident_samples import ResidentAugment, ResidentSamples
from nnlo_lib.train.task import Task

RNG = np.random.default_rng(0)
CHANGES = {"augment": {"flip": 0.5, "pad": 2, "window": 5}, "crop": 6, "normalize": "standard"}
CASES = {
    "changed images in parts": (
        "allreduce",
        {"data": CHANGES, "train": {"accumulate": 3}, "problem": {"mixup": 0.3, "cutmix": 1}},
    ),
    "own samples": ("dsgd", {"data": {"partition": {"name": "contiguous"}, "stream": {"window": 50}}}),
    "dealt": ("downpour", ASYNCHRONOUS["downpour"] | {"train": {"dealing": "dynamic"}}),
}


def placed(job, placement, folder=None):
    data = job.run.data.model_copy(update={"placement": placement})
    return replace(job, run=job.run.model_copy(update={"data": data}), folder=folder or job.folder)


@settings(max_examples=100)
@given(
    count=st.integers(0, 5), height=st.integers(3, 9), width=st.integers(3, 9), flip=st.floats(0, 1),
    pad=st.integers(0, 20), crop=st.none() | st.integers(1, 3), window=st.none() | st.integers(1, 12),
    dtype=st.sampled_from(["bool", "uint8", "int16", "uint16", "float16", "float32", "float64", "int64"]),
)  # fmt: skip
def test_images_change_as_on_the_host(count, height, width, flip, pad, crop, window, dtype):
    images = RNG.integers(0, 200, (count, 2, height, width)).astype(dtype)
    if images.dtype.kind == "f":
        images[images == 3] = np.nan  # neither NaN nor -0.0 may remain where a pixel becomes zero
        images *= -1
    draws = (flip, pad, crop, window)
    (expected,) = Augment(*draws, seed=4)((images.copy(),), 2, 7)
    (changed,) = ResidentAugment(*draws, seed=4)((torch.from_numpy(images),), 2, 7)
    assert (changed.numpy().dtype, changed.numpy().tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.parametrize("partition", ["iid", "sorted"])
def test_batches_of_several_inputs(tmp_path, monkeypatch, partition):
    inputs = [
        RNG.integers(0, 255, (90, 1, 6, 6), dtype=np.uint8),
        RNG.normal(size=(90, 3)),
        RNG.integers(0, 9, (90, 4)),
    ]
    store = handmade(tmp_path / "store", {"train": (inputs, np.arange(90) % 4)}, shard=40)
    run = Run.model_validate(
        {"data": {"partition": {"name": partition}, "crop": 4}, "train": {"batch_size": 16}}
    )
    data = TrainingData(Task("e", "r", run, 1, None, 1, store.folder / "manifest.json", tmp_path / "job"), 2)
    monkeypatch.setattr(resident_samples, "COPY_BYTES", 1000)  # in several pieces
    for worker in range(2):
        pairs = zip(data.loader(worker).epoch(1), data.loader(worker, "cpu").epoch(1), strict=True)
        for host, device in pairs:
            assert host.ids.tolist() == device.ids.tolist()
            for array, tensor in zip(
                (*host.inputs, host.labels), (*device.inputs, device.labels), strict=True
            ):
                assert isinstance(tensor, torch.Tensor)
                assert (tensor.numpy().dtype, tensor.numpy().tobytes()) == (array.dtype, array.tobytes())


@pytest.mark.parametrize("case", CASES)
def test_a_training_has_the_same_bits_and_may_change_the_placement_when_it_resumes(
    tmp_path, monkeypatch, case
):
    name, changes = CASES[case]
    host = task(tmp_path / "host", digits(), name, changes)
    simulate(host, CALLS, CALLS)
    moved = []
    monkeypatch.setattr(
        dataset, "ResidentSamples", lambda *each: moved.append(each) or ResidentSamples(*each)
    )
    device = placed(host, "device", tmp_path / "device")
    assert not train_simulated(device, StopAfter(CALLS))
    # Servers train on no samples.
    assert len(moved) == host.run.parallel.ranks - host.run.algorithm.servers
    assert not train_simulated(placed(device, "host"), StopAfter(CALLS))
    simulate(device)
    assert find_differences(device.folder, host.folder) == []


def test_samples_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    pixels = np.zeros((100, 1, 50, 40), np.uint8)
    split = Split(handmade(tmp_path, {"train": (pixels, np.arange(100) % 2)}), "train")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (150_000, 1_000_000))
    message = r"80 training samples of a rank have 161 kB, but 150 kB of cuda:1 are free; set data"
    with pytest.raises(UserError, match=message):
        ResidentSamples(split, np.arange(80), "cuda:1")


def test_a_recording_reads_batches_that_are_on_the_device():
    memory, label = torch.zeros(2, 3), torch.zeros(2)
    recording = Recording(SimpleNamespace(replay=lambda: None), (memory,), label, label, label)
    recording.replay((torch.ones(2, 3), np.ones(2, np.float32)))
    assert memory.eq(1).all()
    assert label.eq(1).all()
