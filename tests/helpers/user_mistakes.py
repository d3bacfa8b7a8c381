"""Mistakes as users make them: the experiment, files beside it, and a part of the sentence that names the mistake."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=10, features=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.layers(x.flatten(1))

def build(shape, classes, features=64):
    return Net(classes, features)
"""
LOSSES = """
from torch.nn import functional

def right(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")

def mean(outputs, targets):
    return functional.cross_entropy(outputs, targets)

def listed(outputs, targets):
    return [1.0] * len(targets)

def one(outputs):
    return outputs.sum(1)

def broken(outputs, targets):
    return (outputs - targets).square().mean(1)

def nothing(outputs, targets):
    functional.cross_entropy(outputs, targets)
"""
OF_NET = "model: {name: net.py:build}\n"
OF_ARRAYS = "data:\n  dataset: mine\n  source: .\n  reader: {name: arrays, train: %s, test: test.npz}\n"


@dataclass(frozen=True)
class Example:
    """One mistake."""

    title: str  # the mistake in words
    settings: str  # the experiment file
    sentence: str  # part of the message
    # text in net.py or losses.py and what the user wrote instead
    changes: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # other files of the user

    def write(self, folder: Path) -> None:
        """Write the experiment as x.yaml, and net.py, losses.py, train.npz, test.npz and the user's other files."""
        texts = {"net.py": NET.lstrip(), "losses.py": LOSSES.lstrip(), "x.yaml": self.settings, **self.files}
        assert all(any(old in text for text in texts.values()) for old in self.changes), self.title
        for name, text in texts.items():
            for old, new in self.changes.items():
                text = text.replace(old, new)
            (folder / name).write_text(text)
        _write_arrays(folder)


def _write_arrays(folder: Path) -> None:
    draws = np.random.default_rng(0)
    for name, samples in (("train", 60), ("test", 20)):
        features = draws.random((samples, 1, 8, 8)).astype(np.float32)
        labels = np.arange(samples) % 3
        targets = features.reshape(samples, -1)[:, :2]
        np.savez(folder / f"{name}.npz", features=features, labels=labels, targets=targets)
    np.savez(folder / "other.npz", features=draws.random((9, 5)).astype(np.float32), labels=np.arange(9) % 3)


FORWARD = "return self.layers(x.flatten(1))"
MODELS = [
    Example("typing error in the function's name", "model: {name: net.py:biuld}", "x.yaml:1: model.name: net.py has no function 'biuld'; did you mean 'build'?"),
    Example("syntax error", OF_NET, "x.yaml:1: model.name: net.py cannot be loaded: net.py:10: ", {FORWARD: "return self.layers(x.flatten(1)"}),
    Example("wrong indentation", OF_NET, "net.py:11: unexpected indent: return", {f"        {FORWARD}": f"        x = x * 2\n          {FORWARD}"}),
    Example("import of a package that is missing", OF_NET, "net.py:1 in <module>: ModuleNotFoundError: No module named 'trochvision'", {"import torch\n": "import trochvision\n"}),
    Example("misspelt name in a file", OF_NET, "NameError: name 'nm' is not defined", {"class Net(nn.Module)": "class Net(nm.Module)"}),
    Example("unknown argument of a function", "model: {name: net.py:build, args: {feature: 64}}", "model.args.feature: net.py:build has no argument 'feature'; did you mean 'features'?"),
    Example("unknown argument of a zoo model", "model: {name: simplecnn, args: {dropuot: 0.2}}", "x.yaml:1: model.args.dropuot: simplecnn has no argument 'dropuot'; did you mean 'dropout'?"),
    Example("argument of the zoo that NNLO sets", "model: {name: simplecnn, args: {classes: 5}}", "model.args.classes: simplecnn has no argument 'classes'"),
    Example("value of a wrong type", "model: {name: simplemlp, args: {hidden: many}}", "model.name: TypeError: "),
    Example("value that the zoo model refuses", "model: {name: simplecnn, args: {dropout: 2.0}}", "dropout probability has to be between 0 and 1, but got 2.0"),
    Example("missing argument", OF_NET, "model.args: net.py:build called with shape, classes: missing a required argument: 'features'", {"features=64):\n    return": "features):\n    return"}),
    Example("function without the shape", OF_NET, "model.args: net.py:build called with shape, classes: too many positional arguments; define it as (shape, classes, **args)", {"build(shape, classes, features=64)": "build(classes)"}),
    Example("the model's class without its arguments", "model: {name: net.py:Net}", "net.py"),
    Example("wrong in_features", OF_NET, "x.yaml:1: model.name: net.py:10 in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x64 and 100x32); Linear(in_features=100, out_features=32, bias=True) got an input of shape (3, 64); samples are 1 x 8 x 8", {"features=64):\n    return": "features=100):\n    return"}),
    Example("flatten forgotten", OF_NET, "net.py:10 in forward: RuntimeError: ", {FORWARD: "return self.layers(x)"}),
    Example("return forgotten in forward", OF_NET, "model.name: net.py:build: forward() of Net returned NoneType; it must return a tensor", {FORWARD: "self.layers(x.flatten(1))"}),
    Example("return forgotten in the function", OF_NET, "the model net.py:build returned NoneType; it must return a torch.nn.Module", {"return Net(": "Net("}),
    Example("class instead of an object", OF_NET, "the model net.py:build returned type; it must return a torch.nn.Module", {"return Net(classes, features)": "return Net"}),
    Example("super().__init__() forgotten", OF_NET, "net.py:7 in __init__, called from net.py:13 in build: AttributeError: cannot assign module before Module.__init__() call", {"        super().__init__()\n": "        pass\n"}),
    Example("layer that does not exist", OF_NET, "net.py:10 in forward: AttributeError: 'Net' object has no attribute 'layer'", {"self.layers(x": "self.layer(x"}),
    Example("fixed batch size in a view", OF_NET, "net.py:10 in forward: RuntimeError: shape '[32, 64]' is invalid for input of size 192", {"x.flatten(1)": "x.view(32, 64)"}),
    Example("samples and features mixed by a view", OF_NET, "loss: cross_entropy fails: the model returns (6, 10) for 3 samples with labels of 10 classes: ", {"x.flatten(1)": "x.view(-1, 32)", "features=64):\n    return": "features=32):\n    return"}),
    Example("three channels expected", OF_NET, "expected input[3, 1, 8, 8] to have 3 channels, but got 1 channels instead", {"nn.Sequential(": "nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), ", FORWARD: "return self.layers(x)"}),
    Example("kernel larger than the image", OF_NET, "Kernel size can't be greater than actual input size", {"nn.Sequential(": "nn.Sequential(nn.Conv2d(1, 8, 11), nn.Flatten(), ", FORWARD: "return self.layers(x)"}),
    Example("ImageNet model on small images", "model: {name: alexnet_2012}", "model.name: "),
    Example("model of images on a table", "data: {dataset: diabetes}\nproblem: regression\nmodel: {name: simplecnn}", "simplecnn requires images (channels, height, width) of at least 2 x 2 pixels, but the samples are (10,)"),
    Example("model without parameters", OF_NET, "model.name: net.py:build: the model has no trainable parameter", {"return Net(classes, features)": "return nn.Flatten()"}),
    Example("model of texts on images", "model: {name: lstm}", "lstm requires texts of word numbers (steps,), but the samples are (1, 8, 8)"),
    Example("list of numbers returned", OF_NET, "forward() of Net returned list, list", {FORWARD: "return self.layers(x.flatten(1)).tolist(), []"}),
    Example("NumPy in forward", OF_NET, "net.py:10 in forward: RuntimeError: Can't call numpy() on Tensor that requires grad", {FORWARD: "return torch.tensor(self.layers(x.flatten(1)).numpy())"}),
    Example("no gradient", OF_NET, "model.name: the loss has no gradient: RuntimeError: element 0 of tensors does not require grad", {FORWARD: "return self.layers(x.flatten(1)).detach()"}),
    Example("in-place change that backward needs", OF_NET, "modified by an inplace operation", {FORWARD: "h = torch.exp(self.layers(x.flatten(1)))\n        h += 1\n        return h"}),
    Example("one output for 10 classes", OF_NET + "loss: binary_cross_entropy\n", "net.py:build: the model returns 1 number per sample, but digits has 10 classes", {"nn.Linear(32, classes)": "nn.Linear(32, 1)"}),
    Example("too few outputs", OF_NET, "model.name: net.py:build: the model returns 5 numbers per sample, but digits has 10 classes; return one number for each class", {"return Net(classes,": "return Net(5,"}),
    Example("weights of another net", OF_NET + "  # weights\n", "model.weights: w.pt does not fit the model: missing tensors: layers.0.bias", {"{name: net.py:build}": "{name: net.py:build, weights: w.pt}"}),
    Example("weight file that is damaged", "model: {name: simplecnn, weights: net.pt}", "net.pt is damaged", {}, {"net.pt": "no weights"}),
    Example("saved network that is damaged", "model: {name: net.pt}", "x.yaml:1: model.name: ", {}, {"net.pt": "no network"}),
]  # fmt: skip
PROBLEMS = [
    Example("typing error in a loss", "loss: losses.py:rihgt", "x.yaml:1: loss: losses.py has no function 'rihgt'; did you mean 'right'?"),
    Example("loss returns the mean", "loss: losses.py:mean", "loss: losses.py:mean returned (); it must return a tensor with one number for each of 3 samples"),
    Example("loss with one argument", "loss: losses.py:one", "loss: must accept (outputs, targets): too many positional arguments"),
    Example("loss of wrong shapes", "loss: losses.py:broken", "losses.py:16 in broken: RuntimeError: The size of tensor a (10) must match the size of tensor b (3)"),
    Example("loss without return", "loss: losses.py:nothing", "losses.py:nothing returned NoneType"),
    Example("metric returns a list", "metrics: [losses.py:listed]", "metrics.0: losses.py:listed returned list; it must return a tensor"),
    Example("typing error in a metric", "metrics: [accuracy, losses.py:reight]", "x.yaml:1: metrics.1: losses.py has no function 'reight'"),
    Example("output that the model does not have", "loss: {main: cross_entropy}", "x.yaml:1: loss: the model has no output 'main'; it has 0"),
    Example("metric of an output that the model does not have", "metrics: [accuracy@side]", "metrics.0: accuracy@side: the model has no output 'side'"),
    Example("classification of numbers", "data: {dataset: diabetes}\nmodel: {name: simplemlp}", "x.yaml:1: problem: classification needs classes"),
    Example("regression with too many outputs", "problem: regression\ndata: {dataset: diabetes}\n" + OF_NET, "loss: the model returns 4 numbers per sample, but each sample has 1 labels", {"return Net(classes, features)": "return Net(4, 10)"}),
    Example("GAN with a classifier", "problem: gan\nmodel: {name: simplecnn}", "model.name: "),
    Example("problem without measure", "problem: {name: 'p.py:Mine'}", "p.py:Mine does not define compute_loss, measure", {}, {"p.py": "from nnlo_lib import Problem\n\nclass Mine(Problem):\n    names = ('loss',)\n"}),
    Example("problem that fails", "problem: {name: 'p.py:Mine'}", "problem.name: p.py:6 in compute_loss: ZeroDivisionError: division by zero", {}, {"p.py": "from nnlo_lib import Problem\n\nclass Mine(Problem):\n    names = ('loss',)\n    def compute_loss(self, module, inputs, targets, step):\n        return 1 / 0\n    def measure(self, module, inputs, targets):\n        pass\n"}),
    Example("problem that returns a tensor", "problem: {name: 'p.py:Mine'}", "Mine.compute_loss returned a Tensor; return BatchLoss(loss, sums)", {}, {"p.py": "from nnlo_lib import Problem\n\nclass Mine(Problem):\n    names = ('loss',)\n    def compute_loss(self, module, inputs, targets, step):\n        return module(*inputs).mean()\n    def measure(self, module, inputs, targets):\n        pass\n"}),
]  # fmt: skip
DATA = [
    Example("table as the data set", "data: people.csv", "x.yaml:1: data.dataset: people.csv is a table; write `data: {dataset: people, source: people.csv, reader: {name: table, label: COLUMN}}`"),
    Example("table as the source of a known data set", "data: {source: people.csv}", "x.yaml:1: data.source: people.csv is a table; write `data: {"),
    Example("source folder that is missing", OF_ARRAYS.replace("source: .", "source: lost") % "train.npz", "x.yaml:3: data.source: no such file or folder: lost"),
    Example("MNIST source without its files", "data: {dataset: mnist, source: .}", "x.yaml:1: data.source: . has none of the files of mnist: train-images-idx3-ubyte.gz"),
    Example("file as source that is no archive", OF_ARRAYS.replace("source: .", "source: train.npz") % "train.npz", "data.source: train.npz is neither a folder nor an archive"),
    Example("ImageNet without a source", "data: {dataset: imagenet, reader: {name: tfrecord}}", "data.source: required, because imagenet has no download address"),
    Example("TFRecords that are missing", "data: {dataset: imagenet, source: ., reader: {name: tfrecord}}", "x.yaml:1: data.source: "),
    Example("file that is missing", OF_ARRAYS % "tarin.npz", "data.reader: file 'tarin.npz' not found in ."),
    Example("pattern that matches nothing", OF_ARRAYS % "'train_*.h5'", "data.reader: no file in . matches train_*.h5; correct the pattern"),
    Example("list with a missing file", OF_ARRAYS % "list.txt", "list.txt:2: file 'lost.npz' not found", {}, {"list.txt": "train.npz\nlost.npz\n"}),
    Example("name of an array that is missing", OF_ARRAYS.replace("train: %s", "train: %s, labels: label") % "train.npz", "x.yaml:4: data.reader: train.npz: no array or group 'label' (found: features, labels, targets)"),
    Example("files of other shapes", OF_ARRAYS % "[train.npz, other.npz]", "all files must have arrays of the same names, sample shapes and types"),
    Example("several labels for a class", OF_ARRAYS.replace("train: %s", "train: %s, labels: targets") % "train.npz", "x.yaml:4: data.reader: train.npz: the label of sample 0 is [0.6369617  0.26978672], neither a class number nor a one-hot row"),
    Example("adaptor that does not exist", OF_ARRAYS.replace("train: %s", "train: %s, adaptor: 'net.py:adapt'") % "train.npz", "data.reader.adaptor: net.py has no function 'adapt'"),
    Example("adaptor that fails", OF_ARRAYS.replace("train: %s", "train: %s, adaptor: 'a.py:adapt'") % "train.npz", "the adaptor a.py:adapt failed: a.py:2 in adapt: ValueError: cannot reshape array", {}, {"a.py": "def adapt(x):\n    return x.reshape(-1, 100)\n"}),
    Example("crop larger than the image", "data: {crop: 12}", "x.yaml:1: data.crop: 12 needs images of at least 12 x 12 pixels, but the samples have shape (1, 8, 8)"),
    Example("normalization of three channels", "data: {normalize: {mean: [0.5, 0.5, 0.5], std: [1, 1, 1]}}", "data.normalize: 3 values are configured"),
    Example("classes of the user's files against outputs", (OF_ARRAYS % "train.npz") + OF_NET, "the model returns 2 numbers per sample, but mine has 3 classes", {"return Net(classes,": "return Net(2,"}),
]  # fmt: skip
SIZES = [
    Example("100,000 folds", "folds: 100000", "x.yaml:1: folds: 100000 folds need at least 100000 samples, not 1442"),
    Example("folds of a search", "search: {space: {train.optimizer.lr: {log_uniform: [0.001, 0.1]}}, folds: {k: 2000}}", "search.folds.k: 2000 folds need at least 2000 samples"),
    Example("batch larger than the data", "train: {batch_size: 2000}", "x.yaml:1: train.batch_size: 2000 is more than the 1298 training samples"),
    Example("no validation sample", "data: {validation: 0.0001}", "data.validation: 0.0001 of 1442 samples gives 0 validation samples"),
    Example("more steps than samples", "train: {steps_per_epoch: 5000}", "train.steps_per_epoch: 5000 is more than the "),
    Example("more workers than samples", "parallel: {ranks: 2000}", "x.yaml:1: parallel.ranks: 2000 ranks for 1298 training samples, but each rank needs at least one"),
    Example("window larger than the samples of a worker", "data: {partition: {name: contiguous}, stream: {window: 2000}}", "data.stream.window: 2000 samples are more than the "),
    Example("window along samples in random order", "data: {stream: {window: 100}}", "data.stream: a window moves along contiguous samples of a worker, not along those of iid"),
    Example("window and an epoch that ends early", "data: {partition: {name: contiguous}, stream: {window: 100}}\ntrain: {steps_per_epoch: 3}", "train.steps_per_epoch: with data.stream, an epoch follows"),
    Example("robots that never meet", "data: {dataset: lidar, reader: {name: lidar, robots: 2, width: 200, height: 200}, partition: {name: contiguous}, validation: validation}\nproblem: regression\nalgorithm: {name: dsgd}\nparallel: {ranks: 2}\ntopology: {name: disk, positions: trajectory, rounds: 5, radius: 0.001}\n", "x.yaml:5: topology.radius: 0.001 never connects all nodes"),
    Example("robots without paths", "algorithm: {name: dsgd}\ntopology: {name: disk, positions: trajectory, rounds: 5, radius: 0.5}", "x.yaml:2: topology.positions: digits has no robots that move"),
    Example("folds of the user's files", (OF_ARRAYS % "train.npz") + "folds: 70\n", "folds: 70 folds need at least 70 samples, not 60"),
    Example("one mistake of three runs", "seeds: [1, 2, 3]\nmodel: {name: net.py:build}\nruns:\n  a: {}\n  b: {algorithm: {name: dsgd}}\n", "x.yaml:2: model.name: net.py:10 in forward: ", {"self.layers(x": "self.layer(x"}),
    Example("mistake of one run", "runs:\n  a: {}\n  b: {model: {name: net.py:build}}\n", "x.yaml:3: runs.b.model.name: net.py:10 in forward: ", {"self.layers(x": "self.layer(x"}),
    Example("server without a worker", "parallel: {ranks: 1}\nalgorithm: {name: downpour}", "x.yaml:1: parallel.ranks: "),
    Example("argument that only a search sets", "model: {name: net.py:build}\nsearch: {space: {model.args.width: {integer: [8, 64]}}}", "model.args.width: net.py:build has no argument 'width'"),
]  # fmt: skip
GROUPS = {"models": MODELS, "losses and problems": PROBLEMS, "data": DATA, "sizes and runs": SIZES}
EXAMPLES = [example for group in GROUPS.values() for example in group]
