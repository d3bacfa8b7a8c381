"""A plain perceptron in NumPy, and the samples of a store, for figures of a saved model."""

import h5py
import numpy as np

from helpers.recomputation.raw import Job
from helpers.recomputation.tensors import read_tensors

Samples = tuple[np.ndarray, np.ndarray]  # features (n, inputs), labels (n,)


def samples(job: Job, split: str) -> Samples:
    """Return the samples of a split of the job's data set, as stored."""
    [shard] = job.folder.glob(f"{_root(job)}/data/*/*/{split}-*.h5")
    with h5py.File(shard) as file:
        features, labels = file["features"][:].astype(float), file["labels"][:].astype(float)
    return features.reshape(len(features), -1), labels.reshape(-1)


def _root(job: Job) -> str:
    depth = job.folder.parts[::-1].index("results")
    return "/".join([".."] * (depth + 1))


def held_back(job: Job) -> Samples:
    """Return the validation samples of a training."""
    features, labels = samples(job, "train")
    with np.load(job.folder / "partition.npz") as partition:
        chosen = partition["validation"]
    return features[chosen], labels[chosen]


def trained_on(job: Job) -> Samples:
    """Return the training samples of a training, without its validation samples."""
    features, labels = samples(job, "train")
    with np.load(job.folder / "partition.npz") as partition:
        held = partition["validation"]
    return np.delete(features, held, axis=0), np.delete(labels, held, axis=0)


def outputs(job: Job, features: np.ndarray) -> np.ndarray:
    """Return the outputs of the saved model, a perceptron with ReLU."""
    tensors = read_tensors(job.folder / "model.safetensors")
    layers = sorted({name.rpartition(".")[0] for name in tensors})
    for layer in layers:
        features = features @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"]
        if layer != layers[-1]:
            features = np.maximum(features, 0)
    return features


def cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean negative log likelihood of the labels."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-logarithms[np.arange(len(labels)), labels.astype(int)].mean())


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of samples whose label has the highest score."""
    return float((scores.argmax(axis=1) == labels).mean())


def confusion(scores: np.ndarray, labels: np.ndarray) -> list[list[int]]:
    """Return the number of samples by true (row) and predicted class."""
    counts = np.zeros((scores.shape[1], scores.shape[1]), dtype=int)
    np.add.at(counts, (labels.astype(int), scores.argmax(axis=1)), 1)
    return counts.tolist()
