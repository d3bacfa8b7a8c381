"""Translation of Theano-MPI sessions: rules BSP, EASGD and GOSGD, its models and their training constants."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.theano_mpi_session import TheanoSession


@dataclass(frozen=True)
class TheanoModel:
    """A model with the training constants of its file.

    Attributes:
        name: model name in experiment files.
        batch: samples per step and worker.
        optimizer: optimizer settings; the learning rate is per worker.
        schedule: schedule settings, empty for a constant learning rate.
        extra_settings: other keys of the experiment.
    """

    name: str
    dataset: str
    epochs: int
    batch: int
    optimizer: dict[str, Any]
    schedule: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    extra_settings: dict[str, Any] = field(default_factory=dict)


def _sgd(lr: float, decay: float) -> dict[str, Any]:
    return {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": decay}


def _tenths(*epochs: int) -> dict[str, Any]:
    return {"name": "multi_step", "milestones": list(epochs), "factor": 0.1}


def _imagenet(crop: int) -> dict[str, Any]:
    """Return the keys for images of 256 x 256 pixels: a random crop in training, the center else, and mirrors."""
    reader = {"name": "tfrecord", "resize": "standard", "size": 256}
    return {"data.reader": reader, "data.crop": crop, "data.augment.flip": 0.5, "data.normalize": "standard"}


RESNET = _sgd(0.0125, 1e-4), _tenths(30, 60, 80)
LSGAN = {"problem": {"name": "gan"}, "loss": "least_squares"}
MODELS = {
    "AlexNet": TheanoModel("alexnet_2012", "imagenet", 70, 128, _sgd(0.01, 5e-4), _tenths(20, 40, 60), {}, _imagenet(227)),
    "GoogLeNet": TheanoModel(
        "googlenet", "imagenet", 90, 32, _sgd(0.005, 2e-4), {"name": "polynomial", "power": 0.5},
        {"auxiliary": True}, {"loss_weights": {"1": 0.3, "2": 0.3}} | _imagenet(224),
    ),
    "VGG16": TheanoModel("vgg16", "imagenet", 40, 64, _sgd(0.002, 5e-4), _tenths(15, 30, 35), {}, _imagenet(224)),
    "ResNet50": TheanoModel("resnet50", "imagenet", 90, 32, *RESNET, {}, _imagenet(224)),
    "ResNet152": TheanoModel("resnet152", "imagenet", 90, 32, *RESNET, {}, _imagenet(224)),
    "Cifar10_model": TheanoModel(
        "theanompi_cifar10", "cifar10", 70, 256, _sgd(0.01, 1e-4), _tenths(50, 60, 65), {},
        {"data.crop": 28, "data.augment.flip": 0.5, "data.normalize": "standard"},
    ),
    "Wide_ResNet": TheanoModel(
        "wide_resnet", "cifar10", 90, 128, {"name": "adam", "lr": 0.001}, _tenths(50, 70, 90),
        {"widen": 4, "dropout": 0.3},
    ),
    "LSTM": TheanoModel("lstm", "imdb", 100, 16, {"name": "adadelta", "lr": 1.0}),
    "WGAN": TheanoModel(
        "wgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 5e-5}, {}, {},
        {"problem": {"name": "gan", "critic_steps": 2, "weight_clip": 0.01}, "loss": "wasserstein"},
    ),
    "LSGAN": TheanoModel("lsgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 1e-4}, extra_settings=LSGAN),
    "LSGAN of CIFAR-10": TheanoModel("lsgan_cifar", "cifar10", 100, 128, {"name": "rmsprop", "lr": 1e-4}, extra_settings=LSGAN),
}  # fmt: skip
GANS = {
    "WGAN": "in Theano-MPI, the critic sometimes takes 50 steps; nnlo always takes 2 critic steps per generator step, and "
    "also exchanges the generator",
    "LSGAN": "Theano-MPI decreases the learning rates linearly in the second half of the epochs and exchanges only the "
    "critic; nnlo keeps the learning rates constant and exchanges both networks",
}


def find_theano_model(file: str, cls: str) -> TheanoModel | None:
    """Return a model of Theano-MPI, or None; `file` distinguishes the two models named LSGAN."""
    if not file.startswith("theanompi"):
        return None
    return MODELS.get(f"{cls} of CIFAR-10" if cls == "LSGAN" and "cifar" in file else cls)


# All-to-all and trees were routes for the same sums; the names that end with 16 send half precision.
STRATEGIES = ("ar", "nccl32", "nccl16", "asa32", "asa16", "copper", "copper16")
NOTES = {
    "BIND": "the profile and the launcher bind ranks to cores",
    "SIZE": "Theano-MPI ignores SIZE and counts the devices; nnlo does the same",
}


def translate_session(session: TheanoSession) -> ExperimentDraft:
    """Translate a session of Theano-MPI."""
    draft = ExperimentDraft("Imported from a Theano-MPI session:")
    rule, cls = session.keys["RULE"], session.keys["MODELCLASS"]
    draft.set("name", named(f"{cls}-{rule.lower()}"), "model class and rule")
    ranks, hosts = sum(len(devices) for devices in session.hosts), len(session.hosts)
    source = session.as_written("DEVICES")
    draft.set("parallel.ranks", ranks, source)
    draft.set("parallel.gpus_per_rank", 1, f"{source}; set 0 without GPUs")
    if hosts > 1:
        draft.set("resources.nodes", hosts, f"{hosts} hosts; the scheduler chooses them")
    _set_algorithm(draft, session, ranks)
    if known := find_theano_model(session.keys["MODELFILE"], cls):
        _set_known_model(draft, session, known, ranks)
    else:
        _set_own_model(draft, session)
    if rule == "BSP":
        _set_exchange(draft, session)
    for key, text in NOTES.items():
        if key in session.keys:
            draft.note(f"{session.as_written(key)}: {text}")
    draft.given += [session.as_written(key) for key in session.keys]
    return draft


def _set_algorithm(draft: ExperimentDraft, session: TheanoSession, ranks: int) -> None:
    rule, source = session.keys["RULE"], session.as_written("RULE")
    # EASGD needs a server and a worker, GOSGD two peers.
    if ranks == 1 and rule != "BSP":
        draft.set("algorithm", {"name": "allreduce"}, f"{source}; a single device has no peers")
    elif rule == "EASGD":
        elastic = {"name": "easgd", "sync_every": 10, "alpha": 0.5}
        draft.set("algorithm", elastic, f"{source}, constants of Theano-MPI")
        draft.note(
            "EASGD: in Theano-MPI, tau counts files of images, each with several sub-batches; in nnlo, it counts batches. "
            "In Theano-MPI, every worker reads all samples in the same order; in nnlo, the workers share the samples. In both, "
            "the first device is the server."
        )
    elif rule == "GOSGD":
        draft.set("algorithm", {"name": "gosgd", "probability": 0.01}, f"{source}, p of Theano-MPI")
    else:
        draft.set("algorithm", {"name": "allreduce"}, source)


def _set_own_model(draft: ExperimentDraft, session: TheanoSession) -> None:
    path = f"{session.keys['MODELFILE'].removesuffix('.py').replace('.', '/')}.py"
    source = f"{session.as_written('MODELFILE')}, {session.as_written('MODELCLASS')}"
    reason = "nnlo cannot run Theano models; write a function (shape, classes, **args) that returns a torch.nn.Module"
    missing = "" if Path(path).is_file() else f"{path} does not exist; {reason}"
    if not missing:
        draft.note(f"{source}: {reason}")
    draft.set("model", {"name": f"{path}:{session.keys['MODELCLASS']}"}, source, missing)
    draft.note(
        "Epochs, batch size, learning rates and data are constants in Theano-MPI's model file; set them in the "
        "`train` and `data` sections."
    )


def _set_known_model(draft: ExperimentDraft, session: TheanoSession, known: TheanoModel, ranks: int) -> None:
    cls, source = session.keys["MODELCLASS"], f"a constant of {session.keys['MODELCLASS']}"
    draft.set("data.dataset", known.dataset, f"the data of {cls}")
    words = f"{session.as_written('MODELFILE')}, {session.as_written('MODELCLASS')}"
    draft.set("model", {"name": known.name, "args": known.args}, words)
    constants = {"train.epochs": known.epochs, "train.batch_size": known.batch, **known.extra_settings}
    for key, value in constants.items():
        draft.set(key, value, source)
    if known.dataset == "imagenet":
        draft.note(
            "ImageNet: Theano-MPI reads hickle files of 256 x 256 pixels; nnlo makes images of this size from TFRecords."
        )
    if cls in GANS:
        draft.note(f"{cls}: {GANS[cls]}.")
    optimizer, source = dict(known.optimizer), f"constants of {cls}"
    # Theano-MPI scales the learning rate only in BSP.
    if session.keys["RULE"] == "BSP" and ranks > 1:
        optimizer["lr"] = round(optimizer["lr"] * ranks, 12)
        source += f", learning rate times {ranks} workers"
        warm_up = {"epochs": 5, "start": round(1 / ranks, 6)}
        start = "BSP warms up from the rate of one worker, in Theano-MPI by equal factors"
        draft.set("train.warm_up", warm_up, start)
        draft.note(
            "BSP: Theano-MPI applies no weight decay and twice the learning rate to biases; nnlo treats all parameters "
            "alike."
        )
    draft.set("train.optimizer", optimizer, source)
    if known.schedule:
        draft.set("train.schedule", known.schedule, f"adjust_hyperp of {cls}")


def _set_exchange(draft: ExperimentDraft, session: TheanoSession) -> None:
    """Translate what BSP exchanges and how; the other rules do not read these keys."""
    sync, source = session.keys.get("BSP_SYNC_TYPE"), session.as_written("BSP_SYNC_TYPE")
    if sync == "avg":
        draft.override("algorithm", {"name": "average", "sync_every": 1}, source)
    elif sync == "cdd":
        draft.note(f"{source}: cdd averages momenta, which is equivalent to averaging gradients")
    elif sync == "swap":
        draft.lose(source, "no algorithm of nnlo swaps the parameters of pairs of ranks")
    elif sync:
        draft.lose(source, "Theano-MPI has no such type")
    wire, source = session.keys.get("BSP_EXCH_STRATEGY"), session.as_written("BSP_EXCH_STRATEGY")
    if not wire:
        return
    if wire in STRATEGIES and wire.endswith("16"):
        draft.set("compression", {"name": "fp16"}, source)
    if wire.startswith("nccl"):
        draft.set("parallel.gpu_exchange", "nccl", source)
    elif wire in STRATEGIES:
        draft.note(f"{source}: ranks communicate through MPI")
    else:
        draft.lose(source, "Theano-MPI has no such strategy")
