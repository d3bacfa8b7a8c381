"""Import of every command in NNLO's README, by its meaning in NNLO's code."""

import pytest

from nnlo_lib.config.optimizer import AdagradConfig, AdamConfig
from nnlo_lib.config.stopping import EarlyStoppingConfig, TargetMetricConfig

TRAIN = "--loss categorical_crossentropy --epochs 3"
LISTS = "--train_data /path/to/train_{0}.list --val_data /path/to/test_{0}.list"
NAMED = f"TrainingDriver --model {{0}} {TRAIN} --trial-name n3g1epoch3 {LISTS}"
ADAM = AdamConfig().model_dump()


def defaults(experiment, ranks=3, loss="cross_entropy"):
    """Assert that an experiment has NNLO's defaults."""
    assert experiment.algorithm.name == "gem"
    assert (experiment.algorithm.momentum, experiment.algorithm.kappa) == (0.9, 2.0)
    assert experiment.train.optimizer.model_dump() == ADAM
    assert (experiment.train.batch_size, experiment.parallel.ranks) == (100, ranks)
    assert experiment.loss == loss


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
@pytest.mark.parametrize("launcher", ["mpirun -np 3", "jsrun -n 3 -g 1"])
def test_lists_of_files(imported, launcher, data):
    experiment, text = imported(f"{launcher} {NAMED.format(data)}")
    defaults(experiment)
    assert experiment.name == f"{data}-n3g1epoch3"
    assert experiment.train.epochs == 3
    assert experiment.data.source == "/path/to"
    assert experiment.data.reader.train == f"train_{data}.list"
    assert (experiment.data.reader.validation, experiment.data.validation) == (
        f"test_{data}.list",
        "validation",
    )
    assert experiment.parallel.gpus_per_rank == ("-g 1" in launcher)
    assert (experiment.model.name, experiment.data.reader.channels) == (f"nnlo_{data}", "last")
    assert "shuffled" in text


def test_a_model_of_its_examples(imported):
    experiment, _ = imported(
        f"mpirun -np 3 python TrainingDriver.py --model examples/example_mnist_torch.py {TRAIN}"
    )
    defaults(experiment)
    assert (experiment.data.dataset, experiment.data.validation) == ("mnist", "test")
    assert (experiment.model.name, experiment.train.epochs) == ("nnlo_mnist_torch", 3)


def test_rings(imported):
    experiment, _ = imported(
        f"mpirun -np 5 python3 TrainingDriver.py --model examples/example_mnist.py {TRAIN} --n-processes 2"
    )
    defaults(experiment, ranks=5)
    assert experiment.parallel.processes_per_worker == 2


@pytest.mark.parametrize(
    ("option", "key", "rule"),
    [
        (
            '--early "val_loss,~<,4"',
            "early_stopping",
            EarlyStoppingConfig(metric="val_loss", smoothed=True, better="smaller", patience=4),
        ),
        (
            '--target-metric "val_acc,>,0.97"',
            "target",
            TargetMetricConfig(metric="val_accuracy", better="larger", value=0.97),
        ),
    ],
)
def test_stopping(imported, option, key, rule):
    experiment, _ = imported(
        "mpirun -np 3 python3 TrainingDriver.py --model examples/example_mnist.py --loss categorical_crossentropy "
        f"--epochs 10000 {option}"
    )
    defaults(experiment)
    assert experiment.train.epochs == 10000
    assert getattr(experiment.train, key) == rule


GAN = (
    "mpirun -tag-output -n 3 python3 MPIGDriver.py dummy.json train_3d.list test_1_3d.list --loss dummy --epochs 5 "
    "--master-gpu --features-name X --labels-name y --tf --mode easgd  --worker-optimizer rmsprop "
)


@pytest.mark.parametrize(
    "end", ["--checkpoint ganGP --checkpoint-int 1", "--checkpoint ganCP --checkpoint-int 1 --restore ganCP"]
)
def test_adversarial(imported, end):
    experiment, text = imported(GAN + end)
    assert (experiment.algorithm.name, experiment.algorithm.sync_every) == ("easgd", 1)
    assert experiment.algorithm.elastic_force == 0.9
    assert experiment.train.optimizer.name == "rmsprop"
    assert experiment.train.epochs == 5
    assert experiment.checkpoint.epochs == 1
    reader = experiment.data.reader
    assert (reader.train, reader.validation, reader.features, reader.labels) == (
        "train_3d.list",
        "test_1_3d.list",
        "X",
        "y/b",
    )
    assert (experiment.problem.name, experiment.problem.energy_weight) == ("gan", 5.0)
    assert (experiment.model.name, experiment.loss) == ("calorimeter_gan", "non_saturating")
    problem = experiment.problem
    assert (problem.label_flips, problem.generator_batches, problem.energy_range) == (0.05, 2, (0.1, 5.0))
    assert problem.sum_polynomial == (0.0018, -0.023, 0.11, -0.28, 2.21)
    assert "`problem.half_steps: true`" in " ".join(text.replace("#", "").split())
    assert experiment.parallel.master_gpu
    assert "--master-gpu (parallel.master_gpu)" in " ".join(text.replace("#", "").split())
    assert ("--restore ganCP" in text.split("Differences")[1]) == ("--restore" in end)


OPTIMIZE = "mpirun -np {} --tag-output python3 OptimizationDriver.py --model examples/example_mnist.py --block-size {}"
SAVED = "--epochs 5 --num-iterations 10 --checkpoint CP --checkpoint-interval 2"


@pytest.mark.parametrize(
    ("command", "size", "parallel", "folds", "epochs", "saved"),
    [
        (f"{OPTIMIZE.format(7, 3)} --epochs 3 --num-iterations 10", 3, 2, 1, 3, None),
        (f"{OPTIMIZE.format(13, 6)} --epochs 5 --num-iterations 10 --n-fold 2", 3, 4, 2, 5, None),
        (f"{OPTIMIZE.format(7, 3)} {SAVED}", 3, 2, 1, 5, 2),
        (f"{OPTIMIZE.format(7, 3)} {SAVED} --opt-restore ", 3, 2, 1, 5, 2),
    ],
)
def test_searches(imported, command, size, parallel, folds, epochs, saved):
    experiment, text = imported(command)
    defaults(experiment, ranks=size, loss="binary_cross_entropy")
    search = experiment.search
    assert (search.blocks.size, search.parallel, search.folds.k, search.trials) == (size, parallel, folds, 10)
    assert search.method.name == "gp"
    assert (search.objective.metric, search.objective.epoch) == ("val_accuracy", "last")
    assert (experiment.train.epochs, experiment.checkpoint.epochs) == (epochs, saved)
    assert search.space
    assert experiment.model.name == "nnlo_mnist"
    assert "1 - val_acc" in text
    assert ("--opt-restore: run the same" in text) == ("--opt-restore" in command)


@pytest.mark.parametrize("end", ["", " --opt-restore "])
def test_search_of_the_gan(imported, end):
    experiment, text = imported(
        "mpirun -np 7 --tag-output python3 OptimizationDriver.py --example gan --block-size 3 --epochs 3 "
        f"--num-iterations 10 --checkpoint ganOptCP --checkpoint-int 1{end}"
    )
    assert (experiment.search.trials, experiment.search.parallel, experiment.parallel.ranks) == (10, 2, 3)
    assert experiment.checkpoint.epochs == 1
    assert (experiment.model.name, experiment.problem.name) == ("calorimeter_gan", "gan")
    assert (experiment.loss, experiment.search.objective.metric) == ("non_saturating", "val_loss_gap")
    searched = ("model.args.latent", "model.args.dropout", "problem.energy_weight", "problem.sum_weight")
    assert tuple(experiment.search.space) == searched
    assert "weights of the GAN's three losses" in " ".join(text.replace("#", "").split())
    assert "--example gan" in text.split("Differences")[1]


@pytest.mark.parametrize(
    "command",
    [
        "GetData mnist",
        "GetData cifar10",
        "python3 models/get_cifar10.py",
        "python models/get_3d.py",
        "pip install nnlo",
    ],
)
def test_fetching_is_no_training(refused, command):
    assert "is not a training command" in refused(command)


MODEL = "TrainingDriver --model mnist --loss mse"


def test_modes(imported):
    downpour, text = imported(
        f"mpirun -np 4 {MODEL} --mode downpour --optimizer sgd --n-masters 2 --sync-every 4 --synchronous"
    )
    assert downpour.algorithm.model_dump(exclude={"optimizer"}) == {
        "name": "downpour", "sync_every": 4, "masters": 2, "synchronous": True,
    }  # fmt: skip
    assert (downpour.train.optimizer.name, downpour.train.optimizer.lr) == ("sgd", 0.01)
    assert downpour.loss == "mse"
    assert "pass over all samples" in " ".join(text.replace("#", "").split())
    easgd, _ = imported(f"mpirun -np 4 {MODEL} --mode easgd --elastic-force 0.5 --worker-optimizer sgd")
    assert (easgd.algorithm.elastic_force, easgd.train.optimizer.lr) == (0.5, 1.0)
    alone, _ = imported(f"{MODEL} --worker-optimizer-params \"{{'lr': 0.01, 'beta_1': 0.8}}\"")
    assert (alone.algorithm.name, alone.parallel.ranks) == ("allreduce", 1)
    assert (alone.train.optimizer.lr, alone.train.optimizer.beta1) == (0.01, 0.8)


def test_looking_inside_and_gpus(imported):
    seen, text = imported(f"mpirun -np 4 {MODEL} --monitor --timeline --max-gpus 2")
    assert (seen.observe.trace, seen.observe.monitor, seen.parallel.gpus_per_rank) == (True, 0.5, 0)
    assert "gpus_per_rank: auto" in text
    assert "ranks_per_gpu: 2  # --max-gpus 2, on each host" in text
    assert "gpus_per_rank: auto" in imported(f"mpirun -np 4 {MODEL}")[1]
    every, text = imported(f"mpirun -np 4 {MODEL} --max-gpus -1")
    assert every.parallel.ranks_per_gpu == 1
    assert "--max-gpus -1: all visible GPUs" in " ".join(text.replace("#", "").split())
    without, _ = imported(f"jsrun -n 4 -g 1 {MODEL} --max-gpus 0")
    assert (without.observe.trace, without.observe.monitor, without.parallel.gpus_per_rank) == (
        False,
        None,
        0,
    )


def test_the_copy_command(imported):
    experiment, text = imported(f"{MODEL} --cache-data /tmp --copy-command 's3cmd get {{}} {{}}'")
    assert experiment.data.stage_command == "s3cmd get {source} {target}"
    assert "nnlo copies the files of its store, by absolute path" in " ".join(text.replace("#", "").split())
    plain, _ = imported(f"{MODEL} --cache-data /tmp --copy-command cp")
    assert plain.data.stage_command == "cp {source} {target}"
    without, text = imported(f"{MODEL} --copy-command cp")
    assert without.data.stage_command is None
    assert "--copy-command cp: not translated because NNLO copies files only with --cache-data" in text


def test_rules_of_keras(imported, refused):
    rule = imported(f"{MODEL} --worker-optimizer adagrad --worker-optimizer-params \"{{'lr': 0.05}}\"")[0]
    assert rule.train.optimizer == AdagradConfig(lr=0.05)
    assert "nnlo has no optimizer ftrl" in imported(f"{MODEL} --worker-optimizer ftrl")[1]
    assert "lr" in refused(f"{MODEL} --worker-optimizer-params \"{{'lr': -1}}\"")


def test_what_is_not_measured_cannot_stop(refused):
    assert "val_rank' is not measured" in refused(f"{MODEL} --early-stopping 'val_rank,~<,4'")


def test_a_model_of_the_users(imported, folder):
    (folder / "mine.py").write_text("def get_model(hidden=3): ...\n")
    experiment, _ = imported("mpirun -np 3 TrainingDriver --model mine.py --train_data a.list --loss mse")
    assert experiment.model.name == "mine.py"
    assert (experiment.data.dataset, experiment.data.source) == ("a-files", ".")


def test_a_module_that_names_its_files(imported, folder):
    (folder / "mine.py").write_text("def get_model(): ...\ndef get_train(): ...\ndef get_val(): ...\n")
    experiment, _ = imported("mpirun -np 3 TrainingDriver --model mine.py --loss mse")
    assert (experiment.data.dataset, experiment.data.reader.train) == ("mine-files", "mine.py")
    assert experiment.data.validation == "validation"


def test_a_network_of_keras(imported, folder):
    (folder / "net.json").write_text('{"activation": "softmax"}')
    experiment, _ = imported("mpirun -np 3 TrainingDriver --model net.json --train_data a.list")
    assert (experiment.model.name, experiment.loss) == ("net.json", "binary_cross_entropy")
    assert experiment.problem.outputs == "probabilities"


def test_genetic_search_counts_generations(imported):
    experiment, _ = imported(
        "mpirun -np 5 OptimizationDriver --block-size 2 --hyper-opt genetic --ga-populations 8 --num-iterations 5 "
        "--target-objective 0.02"
    )
    assert (experiment.search.method.population, experiment.search.trials) == (8, 40)
    assert experiment.search.objective.target == pytest.approx(0.98)


def test_every_option_is_told_of(imported):
    from nnlo_lib.compat.importers.nnlo.options import OPTIONS

    values = {int: "2", float: "0.5", str: "word"}
    for name, option in OPTIONS.items():
        if name in ("model", "mode", "early-stopping", "target-metric", "worker-optimizer-params"):
            continue
        word = f"--{name}" + ("" if option.parse is None else f" {values[option.parse]}")
        ranks = "" if name in ("optimizer", "worker-optimizer") else "mpirun -np 5 "
        _, text = imported(
            f"{ranks}{MODEL} --mode downpour {word} --checkpoint C"
            if name == "restore"
            else f"mpirun -np 5 {MODEL} --mode downpour {word}"
        )
        body = "\n".join(line for line in text.splitlines() if "TrainingDriver" not in line)
        assert word in " ".join(body.replace("#", "").split()), name


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("--epoch 3 --bach 10", "TrainingDriver: unknown option --bach; did you mean 'batch'?"),
        ("--epochs many", "--epochs: invalid value 'many'; write an integer"),
        ("--epochs", "--epochs requires a value"),
        ("--gem 3", "--gem is ambiguous; use one of --gem-lr, --gem-momentum, --gem-kappa"),
        ("--synchronous=1", "--synchronous takes no value, got '1'"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_mistakes(refused, end, sentence):
    assert sentence in refused(f"mpirun -np 3 TrainingDriver --model mnist {end}")


def test_blocks_that_do_not_divide(refused):
    assert "6 ranks (one coordinator and 5 workers) cannot be divided" in refused(
        "mpirun -np 6 OptimizationDriver --block-size 3"
    )


def test_search_of_a_model_of_the_users(imported, folder):
    (folder / "mine.py").write_text(
        "from skopt.space import Integer\n\n\ndef get_model(shape, classes, width=3): ...\n\n\n"
        'get_model.parameter_range = [Integer(10, 50, name="width")]\n'
    )
    experiment, _ = imported("mpirun -np 5 OptimizationDriver --model mine.py --block-size 2 --loss mse")
    assert list(experiment.search.space) == ["model.args.width"]


def test_arguments_of_the_optimizer_are_arguments(refused):
    assert "--worker-optimizer-params: invalid value '3'; write a Python dictionary" in refused(
        "TrainingDriver --model mnist --worker-optimizer-params 3"
    )
    assert "invalid value '{lr}'" in refused("TrainingDriver --model mnist --worker-optimizer-params {lr}")


@pytest.mark.parametrize(
    ("example", "searched"),
    [
        ("cifar10", "filters_1 filters_2 filters_3 dense_1 dense_2 dropout_1 dropout_2"),
        ("topclass", "conv_layers dense_layers kernel dropout"),
        (
            "examples/example_jedi_torch.py",
            "hidden effects outputs effect_activation post_activation score_activation",
        ),
    ],
)
def test_space_of_an_example(imported, example, searched):
    experiment, _ = imported(f"mpirun -np 5 OptimizationDriver --example {example} --block-size 2")
    assert list(experiment.search.space) == [f"model.args.{name}" for name in searched.split()]
