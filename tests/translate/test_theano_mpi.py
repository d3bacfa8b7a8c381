"""The sessions of Theano-MPI's README and examples."""

import pytest

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
    assert "constants of the model's file" in text


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
    assert "gpu_exchange: nccl" in text


@pytest.mark.parametrize(
    ("cls", "clip", "loss"), [("WGAN", 0.01, "wasserstein"), ("LSGAN", None, "least_squares")]
)
def test_gans(imported, folder, cls, clip, loss):
    (folder / "g.cfg").write_text(
        f"RULE=BSP\nMODELFILE=theanompi.models.{cls.lower()}\nMODELCLASS={cls}\nDEVICES=cuda0,cuda1\n"
    )
    experiment, _ = imported("g.cfg")
    assert (experiment.problem.name, experiment.problem.weight_clip) == ("gan", clip)
    assert (experiment.model.name, experiment.loss, experiment.data.dataset) == (cls.lower(), loss, "mnist")


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
    assert gosgd.train.optimizer.lr == 0.01  # only BSP scales it
    assert gosgd.data.dataset == "cifar10"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("RULE=BPS\nMODELFILE=a\nMODELCLASS=b\nDEVICES=cuda0", "no rule 'BPS'; did you mean 'BSP'?"),
        ("RUEL=BSP", "s.cfg:1: no key of a session: RUEL; did you mean 'RULE'?"),
        ("RULE=BSP", "the Theano-MPI session has no MODELFILE"),
    ],
)
def test_mistakes(refused, folder, text, sentence):
    (folder / "s.cfg").write_text(text)
    assert sentence in refused("s.cfg")


def test_unknown_option(refused):
    assert "tmlauncher has no option -rul; did you mean 'rule'?" in refused("tmlauncher -rul=BSP")


def test_installing_is_no_training(refused):
    assert "trains nothing" in refused(" $ python setup.py install [--user]")
