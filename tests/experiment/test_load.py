"""Loading of experiment files: values, mistakes with their file, line and key, and overrides by `--set`."""

import re
import textwrap

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnlo_lib.config import Experiment
from nnlo_lib.config.rules.key_names import KEY_OF_WORD, OTHER_WORDS, all_keys
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment, reject_ineffective_overrides


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes mine.yaml in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)

    def mine(text: str | bytes) -> str:
        (tmp_path / "mine.yaml").write_bytes(
            text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        )
        return "mine.yaml"

    return mine


def mistakes(*arguments: object) -> list[str]:
    """Return the lines of the error that loading raises."""
    with pytest.raises(UserError) as error:
        load_experiment(*arguments)
    title, *lines = str(error.value).split("\n  ")
    return lines if title == "the experiment cannot run" else [title, *lines]


ONE_MISTAKE = {
    "misspelt key": ("name: x\nepocs: 3", "2: epocs: unknown key 'epocs'; known: algorithm, checkpoint, compression, data"),
    "misspelt block": ("trian: {}", "1: trian: unknown key 'trian'; did you mean 'train'?"),
    "misspelt nested key": ("train:\n  epoch: 3", "2: train.epoch: unknown key 'epoch'; did you mean 'epochs'?"),
    "misspelt key of a union": ("train:\n  optimizer:\n    name: adam\n    beta_1: 0.9", "4: train.optimizer.beta_1: unknown key 'beta_1'; did you mean 'beta1'?"),
    "misspelt key, two unions deep": (
        "algorithm:\n  name: downpour\n  optimizer:\n    name: sgd\n    moment: 0.9",
        "5: algorithm.optimizer.moment: unknown key 'moment'; did you mean 'momentum'?",
    ),
    "key of another optimizer": (
        "train:\n  optimizer: {name: adadelta,\n    beta1: 0.9}",
        "3: train.optimizer.beta1: unknown key 'beta1'; known: epsilon, groups, lr, name, rho, weight_decay, weight_decay_on",
    ),
    "key that YAML takes for true": ("on: 3", "1: on: unknown key 'on'; known: algorithm"),
    "unknown name": ("algorithm:\n  name: allredcue", "2: algorithm.name: unknown name 'allredcue'; did you mean 'allreduce'?"),
    "name left out": ("train:\n  optimizer:\n    lr: 0.1", "2: train.optimizer: missing `name`"),
    "unknown data set": ("data:\n  dataset: mnits", "2: data.dataset: unknown data set 'mnits'; did you mean 'mnist'?"),
    "unknown model": ("model:\n  name: simplecn", "2: model.name: unknown model 'simplecn'; did you mean 'simplecnn'?"),
    "no such model file": ("model:\n  name: net.py:build", "2: model.name: file not found: 'net.py'"),
    "unknown choice": ("data: {format: hdf}", "1: data.format: must be one of 'hdf5' or 'npz', not \"hdf\""),
    "unknown loss": ("loss: cross_entrpy", "1: loss: unknown name 'cross_entrpy'; did you mean 'cross_entropy'?"),
    "loss of another problem": ("\nloss: huber", "2: loss: 'huber' is only available for regression; for classification: known: "),
    "loss of no file": ("loss: mine.py:f", "1: loss: file not found: 'mine.py'"),
    "unknown loss of an output": ("loss:\n  main: mse\n  aux: msee", "3: loss.aux: unknown name 'msee'; did you mean"),
    "weight of no output": ("loss: {a: mse}\nloss_weights: {b: 1}", "2: loss_weights: output 'b' has no loss"),
    "unknown problem": ("problem: regresion", "1: problem.name: unknown name 'regresion'; did you mean 'regression'?"),
    "metric twice": ("metrics: [accuracy, accuracy]", "1: metrics: two columns of the history would have the name 'accuracy'"),
    "metric of another problem": (
        "problem: regression\nmetrics: [accuracy]",
        "2: metrics.0: 'accuracy' is only available for classification or dense_classification; for regression: ",
    ),
    "unknown choice in a list": ("metrics:\n  - accuracy\n  - acuracy", "3: metrics.1: unknown name 'acuracy'; did you mean 'accuracy'?"),
    "text for a number": ("train:\n  epochs: many", "2: train.epochs: should be a valid integer"),
    "fraction for an integer": ("train:\n  epochs: 2.5", "2: train.epochs: should be a valid integer"),
    "value for a block": ("\nparallel: mpi", "2: parallel: must be a section of keys, such as {key: value}"),
    "number for a block": ("\nalgorithm: 3", "2: algorithm: must be a section of keys, such as {key: value}"),
    "name of a paper": ("algorithm: FedAvg", "1: algorithm.name: unknown name 'FedAvg'; write `algorithm: {name: average, participation: 0.25}`"),
    "unknown name for a block": ("\nalgorithm: downpuor", "2: algorithm.name: unknown name 'downpuor'; did you mean 'downpour'?"),
    "empty block": ("train:\nname: x", "1: train: must be a section of keys, such as {key: value}, not null"),
    "value for a list": ("seeds: yes", "1: seeds: should be a valid list (this is true)"),
    "number that is one seed or a number of seeds": ("seeds: 42", "1: seeds: 42 may be one seed or a number of seeds; write [42] for one seed"),
    "memory without a unit": ("resources: {mem: lots}", "1: resources.mem_mb: 'lots' is not a size; write a number of MB, or 4GB"),
    "seeds as a word": ("seeds: five", "1: seeds: 'five' is neither a number of seeds, such as 5, nor a list of seeds, such as [0, 1, 2]"),
    "name of a data set": ("data: {name: mine}", "1: data.name: unknown key 'name'; did you mean 'dataset'?"),
    "key of the top level": ("train: {folds: 2}", "1: train.folds: unknown key 'folds'; did you mean 'folds' at the top level?"),
    "memory twice": ("resources: {mem: 4GB, mem_mb: 1}", "1: resources.mem: unknown key 'mem'; did you mean 'mem_mb'?"),
    "word of another library": ("train:\n  learning_rate: 0.1", "2: train.learning_rate: unknown key 'learning_rate'; did you mean 'train.optimizer.lr'?"),
    "word of another library in the section": ("train: {optimizer: {name: adam, learning_rate: 0.1}}", "1: train.optimizer.learning_rate: unknown key 'learning_rate'; did you mean 'lr'?"),
    "key of another section": ("normalize: null", "1: normalize: unknown key 'normalize'; did you mean 'data.normalize'?"),
    "key of another kind": ("train: {optimizer: {name: adam, momentum: 1}}", "1: train.optimizer.momentum: unknown key 'momentum'; known: amsgrad, beta1"),
    "word without a key": ("num_workers: 4", "1: num_workers: unknown key 'num_workers'; remove it"),
    "extension inside of a section": ("name: x\ntrain: {x-a: 1}", "2: train.x-a: unknown key 'x-a'"),
    "beginning of a name": ("metrics: [acc]", "1: metrics.0: unknown name 'acc'; did you mean 'accuracy'?"),
    "name in capital letters": ("train: {optimizer: SGD}", "1: train.optimizer.name: unknown name 'SGD'; did you mean 'sgd'?"),
    "adaptor without a function": ("data: {dataset: x, reader: {name: arrays, train: a.npz, adaptor: a.py}}", '1: data.reader.adaptor: must be path.py:function, not "a.py"'),
    "reader without a function": ("data: {dataset: x, reader: {name: a.py}}", "1: data.reader.name: unknown name 'a.py'; known: arrays, cifar, folder, idx, lidar, synthetic, table, texts, tfrecord, or path.py:function of your own"),
    "too small": ("train:\n  batch_size: 0", "2: train.batch_size: should be greater than or equal to 1 (this is 0)"),
    "too large": ("data:\n  validation: 1", "2: data.validation: should be less than 1 (this is 1); or must be one of 'test' or 'validation', not 1"),
    "not a number": ("data: {validation: .nan}", "1: data.validation: should be a finite number (this is NaN); or must be one of"),
    "negative seed": ("seeds: [1,\n  -1]", "2: seeds.1: should be greater than or equal to 0 (this is -1)"),
    "no seeds": ("seeds: []", "1: seeds: needs at least 1 valid value, not []"),
    "seed twice": ("seeds: [1, 1]", "1: seeds: a seed is listed twice"),
    "name that is no folder": ("name: a/b", "1: name: must consist of up to 200 letters, digits, '_', '.' or '-', not \"a/b\""),
    "run that is no folder": ("runs:\n  a b: {}", "2: runs.a b: must consist of up to 200 letters, digits, '_', '.' or '-'"),
    "empty run": ("runs:\n  a:", "2: runs.a: must be a section of keys, such as {key: value}, not null"),
    "search of nothing": ("search: {}", "1: search.space: no key to search"),
    "unknown searcher": ("search:\n  method: {name: baysian}", "2: search.method.name: unknown name 'baysian'; known: auto, genetic, grid, random, skopt, sobol"),
    "two kinds of a dimension": (
        "search:\n  space:\n    train.batch_size: {integer: [1, 2],\n      uniform: [1, 2]}",
        "3: search.space.train.batch_size: set exactly one of uniform, log_uniform",
    ),
    "argument that no file can hold": ("model:\n  args: {x: !!set {a}}", "2: model.args.x: input was not a valid JSON"),
    "server without worker": ("algorithm: {name: downpour}\nparallel:\n  ranks: 1", "3: parallel.ranks: downpour requires at least 2 ranks"),
    "workers of unequal size": (
        "algorithm: {name: downpour}\nparallel: {processes_per_worker: 2,\n  ranks: 4}",
        "3: parallel.ranks: 4 ranks minus one server cannot be divided into workers of 2",
    ),
    "group in allreduce": ("parallel:\n  processes_per_worker: 2", "2: parallel.processes_per_worker: allreduce does not support workers"),
    "more nodes than ranks": ("resources:\n  nodes: 3", "2: resources.nodes: 3 nodes exceed the 2 ranks"),
    "own data without a reader": ("data:\n  dataset: jets\n  source: /jets", "2: data.dataset: unknown data set 'jets'; known: "),
    "own data without a source": ("data:\n  dataset: jets\n  reader: {name: folder}", "1: data.source: required for a data set that is not in the catalog"),
    "reader of other files": ("data:\n  dataset: mnist\n  reader: {name: cifar}", "3: data.reader: mnist requires the reader idx"),
    "arrays without a list": ("data:\n  dataset: jets\n  source: /jets\n  reader:\n    name: arrays", "4: data.reader.train: missing; set this key"),
    "no such way to normalize": ("data: {normalize: units}", "1: data.normalize: must be one of 'unit' or 'standard', not \"units\"; or must be a section of keys"),
    "misspelt key of a normalization": (
        "data:\n  normalize:\n    mean: [0.5]\n    std: [0.5]\n    sdt: [0.5]",
        "5: data.normalize.sdt: unknown key 'sdt'; did you mean 'std'?",
    ),
    "fewer deviations than means": ("data:\n  normalize:\n    mean: [0.5, 0.5]\n    std: [0.5]", "4: data.normalize.std: number of values is 1, but 2 in `mean`"),
    "nesterov alone": ("train:\n  optimizer:\n    name: sgd\n    nesterov: true", "4: train.optimizer.nesterov: requires momentum; set `momentum`, or remove this key"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), ONE_MISTAKE.values(), ids=ONE_MISTAKE)
def test_one_mistake(write, text, sentence):
    (line,) = mistakes(write(text))
    assert line.startswith(f"mine.yaml:{sentence}")


UNREADABLE = {
    "open bracket": ("name: x\nseeds: [1", "2: invalid YAML: "),
    "two colons": ("name: a: b", "1: invalid YAML: mapping values are not allowed here"),
    "tab": ("train:\n\tepochs: 1", "2: invalid YAML: found character '\\t' (a tab) in the indentation; indent by spaces"),
    "no-break space after a key": ("data:\u00a0digits\nname: x".encode(), "1: invalid YAML: space U+00A0 (no-break space); write"),
    "no-break space in braces": ("train: {epochs:\u00a01}".encode(), "1: invalid YAML: space U+00A0 (no-break space); write"),
    "no-break space, UTF-16": ("name: x\ndata:\u00a0digits\n".encode("utf-16"), "2: invalid YAML: space U+00A0"),
    "typographic quotes": ("name: x\nmodel: {name: “net.py:build”}".encode(), "2: invalid YAML: quotation mark U+201C (left double"),
    "typographic key": ("name: x\n„data“: digits".encode(), "2: invalid YAML: quotation mark U+201E"),
    "merge key twice": ("name: x\nx-a: &a {epochs: 1}\ntrain:\n  <<: *a\n  <<: *a", "5: duplicate key '<<'; write one line <<: [*x, *y], in which the first has priority"),
    "two documents": ("name: a\n---\nname: b", "2: invalid YAML: but found another document"),
    "list as a key": ("name: x\n? [a]\n: b", "2: invalid YAML: a key must be a scalar"),
    "python object": ("name: !!python/object:os.system {}", "1: invalid YAML: could not determine"),
    "value that YAML's tag cannot be": ("name: !!bool maybe", "1: invalid YAML: "),
    "latin-1": ("name: x\n# Größe".encode("latin-1"), "2: invalid YAML: invalid start byte (0xf6); save the file as UTF-8"),
    "binary": (b"\x7fELF\xd0\x00\x01", "1: invalid YAML: invalid continuation byte"),
    "text": ("hello", "1: an experiment must be a mapping"),
    "list": ("- 1", "1: an experiment must be a mapping"),
    "key twice": ("name: x\ntrain:\n  epochs: 1\n  epochs: 2", "4: duplicate key 'epochs'"),
    "block twice": ("train: {}\nname: x\ntrain: {}", "3: duplicate key 'train'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable(write, text, sentence):
    assert mistakes(write(text))[0].startswith(f"mine.yaml:{sentence}")


def test_absent_and_empty_files(write, tmp_path):
    assert mistakes(tmp_path / "no.yaml")[0].endswith("no.yaml: No such file or directory")
    assert mistakes(tmp_path)[0].endswith("Is a directory")
    for text in ("", "# only a comment\n", "---\n", "{}"):  # as a full disk leaves it
        assert "no keys in this file" in mistakes(write(text))[0]


def test_all_mistakes_of_a_file_in_its_order(write):
    path = write("""\
        seeds: [1, one]
        train:
          epoch: 3
          batch_size: 0
          optimizer: {name: sgd, lr: -1, moment: 0.9}
        algoritm: {}
        """)
    assert [line.split(":", 3)[1:3] for line in mistakes(path)] == [
        ["1", " seeds.1"],
        ["3", " train.epoch"],
        ["4", " train.batch_size"],
        ["5", " train.optimizer.lr"],
        ["5", " train.optimizer.moment"],
        ["6", " algoritm"],
    ]


OVERRIDES = """\
parallel:
  ranks: 1
runs:
  alone: {}
  served:
    algorithm:
      name: downpour
  wide:
    resources: {nodes: 2}
    parallel:
      ranks: 0
  odd: {train: {optimizer: {rho: 1}}, seeds: [1]}
"""


def test_mistakes_of_runs_point_to_their_overrides_or_to_the_base(write):
    assert [line.partition(" (")[0] for line in mistakes(write(OVERRIDES))] == [
        "mine.yaml:2: runs.served.parallel.ranks: downpour requires at least 2 ranks",
        "mine.yaml:11: runs.wide.parallel.ranks: should be greater than or equal to 1",
        "mine.yaml:12: runs.odd.train.optimizer.rho: unknown key 'rho'; known: amsgrad, beta1, beta2, epsilon, epsilon_inside_root, groups, lr, name, weight_decay, weight_decay_on",
        "mine.yaml:12: runs.odd.seeds: unknown key 'seeds'; known: algorithm, checkpoint, compression, data, loss, loss_weights, metrics, model, observe, "
        "parallel, problem, resources, topology, train",
    ]  # fmt: skip


def test_a_mistake_of_unwritten_keys_points_to_its_run(write):
    (line,) = mistakes(write("runs:\n  a: {}\n  b: {parallel: {processes_per_worker: 3}}\n"))
    assert line.startswith(
        "mine.yaml:3: runs.b.parallel.processes_per_worker: allreduce does not support workers"
    )


def test_a_watched_validation_metric_needs_validation_samples(write):
    text = "data: {validation: 0}\ntrain: {restore_best: val_loss, target: 'train_loss,<,0.1'}\n"
    (line,) = mistakes(write(text))
    sentence = "'val_loss' requires validation samples; set `data.validation` above 0"
    assert line == f"mine.yaml:2: train.restore_best: {sentence}"
    (line,) = mistakes(write(f"{text}runs:\n  a: {{data: {{validation: test}}}}\n  b: {{}}\n"))
    assert line == f"mine.yaml:2: runs.b.train.restore_best: {sentence}"
    load_experiment(write(f"{text}folds: 3\n"))


@pytest.mark.parametrize(
    "other", ["source: /b", "source: /b, format: npz", "reader: {size: 32}", "shard_size: 7"]
)
def test_runs_may_have_data_of_their_own(write, other):
    data = "data: {dataset: birds, source: /a, reader: {name: folder, size: 64}}"
    load_experiment(write(f"{data}\nruns:\n  a: {{}}\n  b: {{data: {{{other}}}}}\n"))


BASE = "train:\n  epochs: 3\nruns:\n  x: {}\n"
BAD_CHANGES = {
    "train": "--set train: not of the form key=value; write for example --set train.epochs=3",
    "=3": "--set =3: not of the form key=value",
    "train.=3": "--set train.=3: not of the form key=value",
    "name=[": "--set name=[: invalid YAML",
    "train.epochs.x=3": "--set train.epochs.x=3: 'epochs' is 3, which has no keys",
    "train.epochs=0": "--set train.epochs=0: train.epochs: should be greater",
    "train.epoch=1": "--set train.epoch=1: train.epoch: unknown key 'epoch'; did you mean 'epochs'?",
    "train={epochs: 0}": "--set train={epochs: 0}: train.epochs: should be greater",
    "train.optimizer.lr=0.1": "--set train.optimizer.lr=0.1: train.optimizer: missing `name`",
    "a.b.c=1": "--set a.b.c=1: a: unknown key 'a'",
    "runs.x.parallel.ranks=0": "--set runs.x.parallel.ranks=0: runs.x.parallel.ranks: should be greater",
    "runs.y.parallel.rank=2": "--set runs.y.parallel.rank=2: runs.y.parallel.rank: unknown key 'rank'; did you mean 'ranks'?",
}


@pytest.mark.parametrize(("change", "sentence"), BAD_CHANGES.items())
def test_mistakes_on_the_command_line(write, change, sentence):
    assert mistakes(write(BASE), [change])[0].startswith(sentence)


def test_mistake_in_the_file_is_not_blamed_on_the_command_line(write):
    assert mistakes(write("train:\n  epochs: 0\n"), ["train.batch_size=2"])[0].startswith("mine.yaml:2: ")


DAY, ADAM = 24 * 60, "train: {optimizer: {name: sgd, momentum: 0.5}}"
NUMBERS = "model: {args: {numbers: [1_000, -12_345_678, 1_000.5], texts: [2024_07, 1_0, 12_34_567, 1__000, 0_7.5, 1_000_00.5, 1e1_0]}}"
READ = {
    "changes in turn": (BASE, ["train.epochs=5", "train.epochs=6", "seeds=[7, 8]", "model.args.hidden=3"], {"train.epochs": 6, "seeds": (7, 8), "model.args": {"hidden": 3}}),
    "change of a run": (BASE, ["runs.x.parallel.ranks=4"], {"variants.x.parallel.ranks": 4, "parallel.ranks": 2}),
    "new name": ("algorithm: {name: average, sync_every: 7}", ["algorithm.name=easgd", "algorithm.sync_every=3"], {"algorithm.name": "easgd", "algorithm.sync_every": 3}),
    "new name without the keys of the section": ("algorithm: {name: average, sync_every: 7}", ["algorithm.name=allreduce"], {"algorithm.name": "allreduce"}),
    "same name": ("algorithm: {name: average, sync_every: 7}", ["algorithm.name=average"], {"algorithm.sync_every": 7}),
    "new name first": (ADAM, ["train.optimizer.name=adam", "train.optimizer.lr=0.3"], {"train.optimizer.name": "adam", "train.optimizer.lr": 0.3}),
    "new name last": (ADAM, ["train.optimizer.lr=0.3", "train.optimizer.name=adam"], {"train.optimizer.name": "adam", "train.optimizer.lr": 0.3}),
    "change of a shared section": (
        "train: {optimizer: &o {name: adam}}\nalgorithm: {name: downpour, sync_every: 2, optimizer: *o}", ["train.optimizer.lr=0.5"],
        {"train.optimizer.lr": 0.5, "algorithm.optimizer.lr": 0.001}),
    "dates, exponents and words as written": (
        "name: 2024-01-01\nmodel: {args: {rate: 1e-3, 1: [2e5, x]}}\nruns: {on: {}}", [],
        {"name": "2024-01-01", "model.args": {"rate": 0.001, "1": [2e5, "x"]}, "variants.on.train.epochs": 10}),
    # 1_000 is a number, as in YAML 1.1 and Python; 2024_07 is a name.
    "underscores": (NUMBERS, [], {"model.args": {"numbers": [1000, -12_345_678, 1000.5], "texts": NUMBERS.partition("texts: [")[2][:-3].split(", ")}}),
    "odd characters in quotes and comments": (
        'name: x  # “quoted”\u00a0\nmodel: {args: {a: "“b”\u00a0", c: d“e”f}}', [], {"model.args": {"a": "“b”\u00a0", "c": "d“e”f"}}),
    "merge key": ("train: {optimizer: &o {name: adam, lr: 0.5}}\nruns:\n  x: {train: {optimizer: {<<: *o, lr: 0.1}}}", [], {"variants.x.train.optimizer.lr": 0.1}),
    "anchors of extensions": (
        "name: x\nx-common: &c {epochs: 7}\nx-more: [1, {a: b}]\ntrain: *c\nruns: {a: {train: {<<: *c, batch_size: 8}}}", [],
        {"train.epochs": 7, "variants.a.train.batch_size": 8, "variants.a.train.epochs": 7}),
    "aliases of runs": (
        "runs:\n  a: &a {train: {epochs: 2}}\n  b:\n    <<: *a\n    model: {name: simplecnn}\n  c: *a", [],
        {"runs": {"a": (two := {"train": {"epochs": 2}}), "b": two | {"model": {"name": "simplecnn"}}, "c": two}}),
    # Slurm's --mem and LSF's -M take 1G as 1024.
    **{f"memory {size}": (f"resources: {{mem_mb: 1}}\nruns: {{a: {{resources: {{mem: {size}}}}}}}", [], {"variants.a.resources.mem_mb": megabytes})
       for size, megabytes in (("4GB", 4000), ("4G", 4096), ("1.5 GiB", 1536), ("250M", 250), (7, 7))},
    # YAML 1.1 reads 24:00:00 as a number in base 60, 010 as 8.
    **{f"time {time}": (text, changes, {"resources.runtime": minutes})
       for time, minutes in (("90", 90), ("'90m'", 90), ("2h", 120), ("'1h 30min'", 90), ("1d", DAY), ("90s", 2), ("0.5h", 30), ("24:00:00", DAY),
                             ("12:00:30", 721), ("01:30:00", 90), ("1-12:00:00", 36 * 60), ("'24:00:00'", DAY), ("010", 10))
       for text, changes in ((f"resources: {{runtime: {time}}}", []), ("name: x", [f"resources.runtime={time}"]))},
    **{f"hours {time}": (f"search: {{space: {{train.optimizer.lr: {{log_uniform: [1e-4, 1e-1]}}}}, budget: {{hours: {time}}}}}", [], {"search.budget.hours": hours})
       for time, hours in (("24:00:00", 24), ("90m", 1.5), ("0.5", 0.5), ("2-00:00:00", 48))},
}  # fmt: skip


@pytest.mark.parametrize(("text", "changes", "values"), READ.values(), ids=READ)
def test_values_are_read_as_people_write_them(write, text, changes, values):
    experiment = load_experiment(write(text), changes)
    for key, value in values.items():
        found = experiment
        for part in key.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        assert found == value, key


@pytest.mark.parametrize("time", ["90:00", "1:90:00", "2 hours", "h", "'0m'", "-5", "'-2h'"])
def test_another_time_is_refused(write, time):
    assert "resources.runtime: " in mistakes(write(f"resources: {{runtime: {time}}}"))[0]


SHORT = """
data: mnist
model: simplecnn
train: {optimizer: adam}
algorithm: average
compression: fp16
runs: {a: {}, b: {algorithm: diloco, model: perceptron, train: {optimizer: sgd}}}
search: {space: {train.optimizer.lr: [0.1, 0.2]}, method: random, fidelity: asha, folds: 2}
"""
LONG = """
data: {dataset: mnist}
model: {name: simplecnn}
train: {optimizer: {name: adam}}
algorithm: {name: average}
compression: {name: fp16}
runs: {a: {}, b: {algorithm: {name: diloco}, model: {name: perceptron}, train: {optimizer: {name: sgd}}}}
search: {space: {train.optimizer.lr: [0.1, 0.2]}, method: {name: random}, fidelity: {name: asha}, folds: {k: 2}}
"""


@pytest.mark.parametrize(
    "changes", [[], ["algorithm=diloco", "runs.b.algorithm.sync_every=3"], ["train.optimizer.lr=0.3"]]
)
def test_a_name_stands_for_a_section(write, changes):
    assert load_experiment(write(SHORT), changes) == load_experiment(write(LONG), changes)


def test_every_word_of_another_library_leads_to_a_key():
    assert set(OTHER_WORDS) <= {*all_keys(Experiment)}
    assert len(KEY_OF_WORD) == sum(len(words.split()) for words in OTHER_WORDS.values())


def test_a_number_of_seeds_is_printed_as_a_list(write, caplog):
    with caplog.at_level("INFO"):
        assert load_experiment(write("seeds: 3")).seeds == (0, 1, 2)
    assert caplog.messages == ["seeds: 3 trains with the seeds 0, 1, 2; for the seed 3 alone, write [3]"]


RANKS = "runs: {two: {parallel: {ranks: 2}}, four: {parallel: {ranks: 4}}, free: {metrics: []}}\n"


@pytest.mark.parametrize("change", ["parallel.ranks=8", "parallel={ranks: 8}"])
def test_a_change_that_all_runs_override_is_refused(write, change):
    experiment = load_experiment(write(RANKS), [change])
    with pytest.raises(UserError) as error:
        reject_ineffective_overrides(experiment, ["two", "four"], [change])
    assert str(error.value) == (
        f"--set {change} has no effect: runs.two.parallel.ranks is 2, runs.four.parallel.ranks is 4; "
        "use --set runs.two.parallel.ranks=8 --set runs.four.parallel.ranks=8"
    )


@pytest.mark.parametrize(
    ("names", "changes", "expected"),
    [
        (["two"], ["runs.two.parallel.ranks=8"], [(8, 10)]),
        (["two", "free"], ["parallel.ranks=8", "train.epochs=3", "name=x", "seeds=[1, 2]"], [(2, 3), (8, 3)]),
        (["four"], ["parallel.ranks=4"], [(4, 10)]),
    ],
    ids=["key of the run", "one run takes it over", "equal value of the run"],
)
def test_a_change_with_an_effect_is_accepted(write, names, changes, expected):
    experiment = load_experiment(write(RANKS), changes)
    reject_ineffective_overrides(experiment, names, changes)
    runs = [experiment.variants[name] for name in names]
    assert [(run.parallel.ranks, run.train.epochs) for run in runs] == expected


@pytest.fixture
def scratch(write, tmp_path, monkeypatch):
    """Set $SCRATCH and the home to a folder with the files of an experiment."""
    place = tmp_path / "deep er"
    (place / "birds").mkdir(parents=True)
    (place / "net.py").write_text(
        "def build(shape, classes): ...\ndef loss(outputs, targets): ...\ndef read(folder, shard_size): ..."
    )
    (place / "w.pt").touch()
    np.save(place / "p.npy", np.zeros((2, 2)))
    for variable in ("SCRATCH", "HOME"):
        monkeypatch.setenv(variable, str(place))
    return place


PATHS = {
    "data.source": "data: {dataset: b, source: AT/birds, reader: {name: folder}}",
    "data.reader.name": "data: {dataset: b, source: ., reader: {name: AT/net.py:read}}",
    "data.reader.adaptor": "data: {dataset: b, source: ., reader: {name: arrays, train: a.npz, adaptor: AT/net.py:loss}}",
    "data.reader.label_adaptor": "data: {dataset: b, source: ., reader: {name: arrays, train: a.npz, label_adaptor: AT/net.py:loss}}",
    "data.reader.image": "data: {dataset: b, source: ., reader: {name: lidar, image: AT/w.pt}}",
    "model.name": "model: AT/net.py:build",
    "model.weights": "model: {name: simplecnn, weights: AT/w.pt}",
    "loss": "loss: AT/net.py:loss",
    "loss.a": "loss: {a: AT/net.py:loss}",
    "metrics.1": "metrics: [accuracy, AT/net.py:build]",
    "topology.positions": "algorithm: dsgd\nparallel: {ranks: 2}\ntopology: {name: disk, radius: 1, positions: AT/p.npy}",
}  # fmt: skip


def quoted(text: str, start: str) -> str:
    return re.sub(r"AT(/[\w.:]+)", rf"'{start}\1'", text)


@pytest.mark.parametrize("start", ["$SCRATCH", "${SCRATCH}", "~"])
@pytest.mark.parametrize(("key", "text"), PATHS.items(), ids=PATHS)
def test_variables_and_the_home_in_paths(write, scratch, key, text, start):
    value = load_experiment(write(f"name: x\n{quoted(text, start)}\n")).model_dump()
    for part in key.split("."):
        value = value[int(part) if part.isdigit() else part]
    assert value.startswith(f"{scratch}/")


@pytest.mark.parametrize(("key", "text"), PATHS.items(), ids=PATHS)
def test_a_variable_that_is_not_set_is_named(write, scratch, key, text):
    (line,) = mistakes(write(f"name: x\n{quoted(text, '$NOWHERE')}\n"))
    assert (
        line.partition(": ")[2]
        == f"{key}: environment variable NOWHERE is not set; set it, or write the path"
    )


def test_dollars_in_names_and_addresses_stay(write, scratch):
    (scratch.parent / "a$b").mkdir()
    for source in ("a$b", "https://x.org/a?token=$b"):
        text = f"name: x\ndata: {{dataset: b, source: '{source}', reader: {{name: folder}}}}\n"
        assert load_experiment(write(text)).data.source == source


VALID = """\
name: valid
data: {dataset: digits, format: npz}
model: {name: simplecnn, args: {dropout: 0.5}}
train: {epochs: 2, optimizer: {name: adam, lr: 0.01}}
algorithm: {name: downpour, sync_every: 2, optimizer: {name: rmsprop, rho: 0.8}}
parallel: {ranks: 3, simulation: {latency: 0.1}}
runs: {a: {train: {optimizer: {lr: 0.2}}}, b: {resources: {nodes: 2}}}
"""
WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["name", "optimizer", "null", "<<", "[key]", "sgd", "a"]),
    st.integers(),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def _paths(block, above=()):
    for key, value in block.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


def _load_anything(path, text):
    """Return the experiment, or the error's text; let every other exception through."""
    path.write_text(text)
    try:
        return load_experiment(path)
    except UserError as error:
        return str(error)


@settings(max_examples=60)
@given(path=st.sampled_from([*_paths(yaml.safe_load(VALID))]), word=WORDS, value=VALUES | st.none())
@example(path=("runs", "a"), word="name", value="x")
def test_no_misspelling_and_no_value_escapes(tmp_path_factory, path, word, value):
    """A valid file with one renamed key or one changed value either loads or raises UserError."""
    *above, last = path
    for change in ("key", "value"):
        tree = yaml.safe_load(VALID)
        block = tree
        for part in above:
            block = block[part]
        if change == "key":
            block[word] = block.pop(last)
        else:
            block[last] = value
        file = tmp_path_factory.getbasetemp() / "any.yaml"
        _load_anything(file, yaml.safe_dump(tree, allow_unicode=True))


@settings(max_examples=100)
@given(text=st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!<> \n'\"#|?,1", max_size=40))
def test_no_text_escapes(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    _load_anything(file, text)


@settings(max_examples=40)
@given(st.data())
def test_the_message_about_a_misspelt_key_has_its_line_and_the_right_word(tmp_path_factory, data):
    """A key without one of its letters is refused with its line and the right key; each key has its own line."""
    tree = yaml.safe_load(VALID)
    del tree["runs"], tree["model"]
    path = data.draw(st.sampled_from([path for path in _paths(tree) if len(path[-1]) > 5]))
    lines = yaml.safe_dump(tree, sort_keys=False).splitlines()
    number = list(_paths(tree)).index(path)
    drop = data.draw(st.integers(0, len(path[-1]) - 1))
    wrong = path[-1][:drop] + path[-1][drop + 1 :]
    lines[number] = lines[number].replace(path[-1], wrong, 1)
    file = tmp_path_factory.getbasetemp() / "misspelt.yaml"
    error = _load_anything(file, "\n".join(lines))
    dotted = ".".join([*path[:-1], wrong])
    assert f"{file}:{number + 1}: {dotted}: unknown key '{wrong}'; did you mean '{path[-1]}'?" in error
