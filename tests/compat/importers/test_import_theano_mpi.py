"""Import of the sessions in Theano-MPI's README and examples."""

import pytest

from nnlo_lib.compat.importers.theano_mpi.models import MODELS
from nnlo_lib.config.schedule import MultiStepScheduleConfig, WarmUpConfig

CFG = """
# launch_session.cfg
RULE=BSP
MODELFILE=models.modelfile
MODELCLASS=ModelClass
DEVICES=cuda0,cuda1
"""
PYTHON = """
# launch_session.py
from theanompi import BSP

rule=BSP()
# modelfile: the relative path to the model file
# modelclass: the class name of the model to be imported from that file
rule.init(devices=['cuda0', 'cuda1'] ,
          modelfile = 'models.modelfile',
          modelclass = 'ModelClass')
rule.wait()
"""


@pytest.mark.parametrize(
    "words",
    [["tmlauncher -cfg=launch_session.cfg"], ["tmlauncher", "-cfg=launch_session.cfg"], ["launch_session.cfg"],
     ["launch_session.py"], ["python launch_session.py"]],
)  # fmt: skip
def test_readme(imported, folder, words):
    (folder / "launch_session.cfg").write_text(CFG)
    (folder / "launch_session.py").write_text(PYTHON)
    experiment, text = imported(*words)
    assert experiment.name == "ModelClass-bsp"
    assert experiment.algorithm.name == "allreduce"
    assert (experiment.parallel.ranks, experiment.parallel.gpus_per_rank) == (2, 1)
    assert "# model: {name: 'models/modelfile.py:ModelClass'}" in text
    assert "constants in Theano-MPI's model file" in text


def test_zoo_over_hosts(imported, folder):
    (folder / "s.cfg").write_text(
        'RULE=BSP\nMODELFILE=theanompi.models.alex_net\nMODELCLASS=AlexNet\nDEVICES=("node0:cuda0" "node1:cuda0,cuda1")\n'
        "BSP_SYNC_TYPE=cdd\nBSP_EXCH_STRATEGY=nccl16\nBIND=yes\n"
    )
    experiment, text = imported("s.cfg")
    assert (experiment.parallel.ranks, experiment.resources.nodes) == (3, 2)
    assert (experiment.data.dataset, experiment.train.epochs, experiment.train.batch_size) == (
        "imagenet",
        70,
        128,
    )
    rule = experiment.train.optimizer
    assert (rule.lr, rule.momentum, rule.weight_decay) == (pytest.approx(0.03), 0.9, 5e-4)
    assert experiment.compression.name == "fp16"
    assert "BSP_SYNC_TYPE=cdd" in text
    assert "BIND=yes" in text
    assert experiment.parallel.gpu_exchange == "nccl"
    assert experiment.train.warm_up == WarmUpConfig(epochs=5, start=0.333333)
    assert experiment.train.schedule == MultiStepScheduleConfig(milestones=(20, 40, 60))


@pytest.mark.parametrize(
    ("file", "cls", "clip", "loss", "model", "data"),
    [
        ("wgan", "WGAN", 0.01, "wasserstein", "wgan", "mnist"),
        ("lsgan", "LSGAN", None, "least_squares", "lsgan", "mnist"),
        ("lsgan_cifar10", "LSGAN", None, "least_squares", "lsgan_cifar", "cifar10"),
    ],
)
def test_gans(imported, folder, file, cls, clip, loss, model, data):
    (folder / "g.cfg").write_text(
        f"RULE=BSP\nMODELFILE=theanompi.models.lasagne_model_zoo.{file}\nMODELCLASS={cls}\nDEVICES=cuda0,cuda1\n"
    )
    experiment, _ = imported("g.cfg")
    assert (experiment.problem.name, experiment.problem.weight_clip) == ("gan", clip)
    assert (experiment.model.name, experiment.loss, experiment.data.dataset) == (model, loss, data)
    assert experiment.train.optimizer.name == "rmsprop"


def test_texts_are_the_film_reviews(imported, folder):
    (folder / "l.cfg").write_text(
        "RULE=BSP\nBSP_SYNC_TYPE=avg\nMODELFILE=theanompi.models.lstm_theanompi\nMODELCLASS=LSTM\nDEVICES=cuda0,cuda1\n"
    )
    experiment, text = imported("l.cfg")
    assert (experiment.model.name, experiment.train.optimizer.name) == ("lstm", "adadelta")
    assert experiment.data.dataset == "imdb"
    assert "IMDB" not in text


@pytest.mark.parametrize(
    ("sync", "strategy", "algorithm", "compression"),
    [
        ("cdd", "ar", "allreduce", "none"),
        ("avg", "nccl32", "average", "none"),
        ("cdd", "asa32", "allreduce", "none"),
        ("cdd", "asa16", "allreduce", "fp16"),
        ("avg", "copper", "average", "none"),
        ("avg", "copper16", "average", "fp16"),
    ],
)
def test_exchanges(imported, folder, sync, strategy, algorithm, compression):
    (folder / "x.cfg").write_text(
        "RULE=BSP\nMODELFILE=theanompi.models.cifar10\nMODELCLASS=Cifar10_model\nDEVICES=cuda0,cuda1\n"
        f"BSP_SYNC_TYPE={sync}\nBSP_EXCH_STRATEGY={strategy}\n"
    )
    experiment, text = imported("x.cfg")
    assert (experiment.algorithm.name, experiment.compression.name) == (algorithm, compression)
    assert getattr(experiment.algorithm, "sync_every", 1) == 1
    assert f"BSP_EXCH_STRATEGY={strategy}" in text


@pytest.mark.parametrize(
    ("sync", "strategy", "sentence"),
    [
        ("swap", "ar", "no algorithm of nnlo swaps the parameters of pairs of ranks"),
        ("sum", "ar", "BSP_SYNC_TYPE=sum: not translated because Theano-MPI has no such type"),
        ("cdd", "asa64", "BSP_EXCH_STRATEGY=asa64: not translated because Theano-MPI has no such strategy"),
    ],
)
def test_exchanges_without_a_counterpart(imported, folder, sync, strategy, sentence):
    (folder / "x.cfg").write_text(
        "RULE=BSP\nMODELFILE=theanompi.models.cifar10\nMODELCLASS=Cifar10_model\nDEVICES=cuda0,cuda1\n"
        f"BSP_SYNC_TYPE={sync}\nBSP_EXCH_STRATEGY={strategy}\n"
    )
    assert sentence in " ".join(imported("x.cfg")[1].replace("#", "").split())


@pytest.mark.parametrize("rule", ["BSP", "EASGD", "GOSGD"])
@pytest.mark.parametrize("cls", [cls for cls in MODELS if " " not in cls])
def test_every_model_of_theirs(imported, folder, cls, rule):
    (folder / "m.cfg").write_text(
        f"RULE={rule}\nMODELFILE=theanompi.models.any\nMODELCLASS={cls}\nDEVICES=cuda0,cuda1\n"
    )
    experiment, _ = imported("m.cfg")
    assert (experiment.model.name, experiment.train.epochs) == (MODELS[cls].name, MODELS[cls].epochs)


def test_auxiliary_classifiers_weigh(imported, folder):
    (folder / "i.cfg").write_text(
        "RULE=BSP\nMODELFILE=theanompi.models.googlenet\nMODELCLASS=GoogLeNet\nDEVICES=cuda0\n"
    )
    experiment, _ = imported("i.cfg")
    assert experiment.model.args == {"auxiliary": True}
    assert experiment.loss_weights == {"1": 0.3, "2": 0.3}
    assert (experiment.train.schedule.name, experiment.train.schedule.power) == ("polynomial", 0.5)


@pytest.fixture
def session(imported, folder):
    """Return a function that imports a session of three devices on CIFAR-10 under a rule."""

    def read(rule):
        (folder / "s.py").write_text(
            f"from theanompi import {rule}\nrule = {rule}()\n"
            "rule.init(devices=['cuda0', 'cuda1', 'cuda2'], modelfile='theanompi.models.cifar10', "
            "modelclass='Cifar10_model')\n"
        )
        return imported("s.py")[0]

    return read


def test_other_rules(session):
    easgd, gosgd = session("EASGD"), session("GOSGD")
    assert (easgd.algorithm.name, easgd.algorithm.sync_every, easgd.algorithm.alpha) == ("easgd", 10, 0.5)
    assert (gosgd.algorithm.name, gosgd.algorithm.probability) == ("gosgd", 0.01)
    assert gosgd.train.optimizer.lr == 0.01  # only BSP scales the learning rate
    assert (gosgd.data.dataset, gosgd.data.crop, gosgd.data.augment.flip) == ("cifar10", 28, 0.5)
    assert gosgd.model.name == "theanompi_cifar10"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("RULE=BPS\nMODELFILE=a\nMODELCLASS=b\nDEVICES=cuda0", "no rule 'BPS'; did you mean 'BSP'?"),
        ("RUEL=BSP", "s.cfg:1: unknown session key 'RUEL'; did you mean 'RULE'?"),
        ("RULE=BSP", "the Theano-MPI session lacks the required key MODELFILE"),
    ],
)
def test_mistakes(refused, folder, text, sentence):
    (folder / "s.cfg").write_text(text)
    assert sentence in refused("s.cfg")


def test_unknown_option(refused):
    assert "tmlauncher: unknown option -rul; did you mean 'rule'?" in refused("tmlauncher -rul=BSP")


def test_installing_is_no_training(refused):
    assert "is not a training command" in refused(" $ python setup.py install [--user]")
