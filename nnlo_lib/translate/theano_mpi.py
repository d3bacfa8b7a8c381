"""Theano-MPI's sessions: the rules BSP, EASGD and GOSGD, and the constants of its models."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.translate import coming
from nnlo_lib.translate.draft import Draft, named
from nnlo_lib.translate.theano_session import Session


@dataclass(frozen=True)
class Zoo:
    """A model, and what its file says of its training: lr is per worker; steps: epochs that divide it by 10."""

    name: str
    dataset: str
    epochs: int
    batch: int
    optimizer: dict[str, Any]
    steps: tuple[int, ...] = ()
    args: dict[str, Any] = field(default_factory=dict)
    loss: str = ""  # of a gan


def _sgd(lr: float, decay: float) -> dict[str, Any]:
    return {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": decay}


MODELS = {
    "AlexNet": Zoo("alexnet_2012", "imagenet", 70, 128, _sgd(0.01, 5e-4), (20, 40, 60)),
    "GoogLeNet": Zoo("googlenet", "imagenet", 90, 32, _sgd(0.005, 2e-4)),
    "VGG16": Zoo("vgg16", "imagenet", 40, 64, _sgd(0.002, 5e-4), (15, 30, 35)),
    "ResNet50": Zoo("resnet50", "imagenet", 90, 32, _sgd(0.0125, 1e-4), (30, 60, 80)),
    "ResNet152": Zoo("resnet152", "imagenet", 90, 32, _sgd(0.0125, 1e-4), (30, 60, 80)),
    "Cifar10_model": Zoo("theanompi_cifar10", "cifar10", 70, 256, _sgd(0.01, 1e-4), (50, 60, 65)),
    "Wide_ResNet": Zoo(
        "wide_resnet",
        "cifar10",
        90,
        128,
        {"name": "adam", "lr": 0.001},
        (50, 70, 90),
        {"widen": 4, "dropout": 0.3},
    ),
    "WGAN": Zoo("wgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 5e-5}, loss="wasserstein"),
    "LSGAN": Zoo("lsgan", "mnist", 100, 64, {"name": "adam", "lr": 1e-4}, loss="least_squares"),
}
WIRES = {"ar": "none", "nccl32": "none", "nccl16": "fp16", "asa32": "none", "asa16": "fp16", "copper": "none"}


def session(session: Session) -> Draft:
    """Translate a session."""
    draft = Draft("A Theano-MPI session, imported:")
    draft.set(
        "name", named(f"{session.keys['MODELCLASS']}-{session.keys['RULE'].lower()}"), "model class and rule"
    )
    ranks = _machine(draft, session)
    _rule(draft, session, ranks)
    _model(draft, session, ranks)
    _exchange(draft, session)
    if "BIND" in session.keys:
        draft.remarks.append(f"{session.said('BIND')}: the profile and the launcher bind ranks to cores")
    if "SIZE" in session.keys:
        draft.remarks.append(
            f"{session.said('SIZE')}: Theano-MPI counted the devices instead, and so does this"
        )
    draft.written += [session.said(key) for key in session.keys]
    return draft


def _machine(draft: Draft, session: Session) -> int:
    ranks, hosts = sum(len(devices) for _, devices in session.hosts), len(session.hosts)
    said = session.said("DEVICES")
    draft.set("parallel.ranks", ranks, said)
    draft.set("parallel.gpus_per_rank", 1, f"{said}; 0 without GPUs")
    if hosts > 1:
        draft.set("resources.nodes", hosts, f"{hosts} hosts; the scheduler chooses them")
    return ranks


def _rule(draft: Draft, session: Session, ranks: int) -> None:
    rule, said = session.keys["RULE"], session.said("RULE")
    if ranks == 1 and rule != "BSP":
        draft.set("algorithm", {"name": "allreduce"}, f"{said}, but one device has nobody to agree with")
    elif rule == "EASGD":
        draft.set(
            "algorithm", {"name": "easgd", "sync_every": 10, "alpha": 0.5}, f"{said}, constants of its source"
        )
        draft.remarks.append(
            "EASGD: tau counted files of images, sub-batches each; here it counts batches. There every worker had all of "
            "the data in the same order; here they share it. The first device is the server in both."
        )
    elif rule == "GOSGD":
        draft.set("algorithm", {"name": "gosgd", "probability": 0.01}, f"{said}, p of its source")
    else:
        draft.set("algorithm", {"name": "allreduce"}, said)


def _model(draft: Draft, session: Session, ranks: int) -> None:
    file, cls = session.keys["MODELFILE"], session.keys["MODELCLASS"]
    said = f"{session.said('MODELFILE')}, {session.said('MODELCLASS')}"
    known = MODELS.get(cls) if file.startswith("theanompi") else None
    if known is None:
        path = f"{file.removesuffix('.py').replace('.', '/')}.py"
        why = (
            "Theano models do not run; write a function (shape, classes, **args) that returns a torch Module"
        )
        if Path(path).is_file():
            draft.remarks.append(f"{said}: {why}")
            draft.set("model", {"name": f"{path}:{cls}"}, said)
        else:
            draft.set("model", {"name": f"{path}:{cls}"}, said, f"{why}, in this file, which is not here")
        draft.remarks.append(
            "Epochs, batch size, rates and data were constants of the model's file: set train: and data:"
        )
        return
    draft.set("data.dataset", known.dataset, f"the data of {cls}")
    draft.set(
        "model",
        {"name": known.name, "args": known.args},
        said,
        "" if known.loss else f"the zoo has no {known.name}; until then the default model is trained",
    )
    if known.loss:
        _gan(draft, known, said)
    draft.set("train.epochs", known.epochs, f"a constant of {cls}")
    draft.set("train.batch_size", known.batch, f"a constant of {cls}")
    _rate(draft, session, known, ranks)


def _gan(draft: Draft, known: Zoo, said: str) -> None:
    clipped = {"critic_steps": 2, "weight_clip": 0.01}
    draft.set("problem", {"name": "gan", **(clipped if known.loss == "wasserstein" else {})}, said)
    draft.set("loss", known.loss, said)
    if known.loss == "wasserstein":
        draft.remarks.append(
            "WGAN: its critic takes 50 steps at times; here always 2 for one of the generator."
        )


def _rate(draft: Draft, session: Session, known: Zoo, ranks: int) -> None:
    rule, said = dict(known.optimizer), f"constants of {session.keys['MODELCLASS']}"
    if session.keys["RULE"] == "BSP" and ranks > 1:
        rule["lr"] = round(rule["lr"] * ranks, 12)
        said += f", rate times {ranks} workers"
        warm_up = {"epochs": 5, "start": round(1 / ranks, 6)}
        coming.WARM_UP.to(draft, warm_up, "BSP warms up from one worker's rate, there by equal factors")
        draft.remarks.append(
            "BSP: biases had no weight decay and twice the rate; here all parameters are alike."
        )
    draft.set("train.optimizer", rule, said)
    if known.steps:
        steps = {"name": "multi_step", "milestones": list(known.steps), "factor": 0.1}
        coming.STEPS.to(draft, steps, f"{session.keys['MODELCLASS']} divides its rate by 10")


def _exchange(draft: Draft, session: Session) -> None:
    sync, wire = session.keys.get("BSP_SYNC_TYPE"), session.keys.get("BSP_EXCH_STRATEGY")
    if session.keys["RULE"] != "BSP":
        draft.idle += [
            session.said(key) for key in ("BSP_SYNC_TYPE", "BSP_EXCH_STRATEGY") if key in session.keys
        ]
        return
    if sync == "swap":
        draft.later(session.said("BSP_SYNC_TYPE"), "no algorithm swaps the parameters of pairs")
    elif sync:
        draft.remarks.append(
            f"{session.said('BSP_SYNC_TYPE')}: cdd averaged momenta, which is the same as averaging gradients; avg, "
            "parameters: that is `algorithm: {name: average, sync_every: 1}`"
        )
    if not wire:
        return
    if WIRES.get(wire) == "fp16":
        draft.set("compression", {"name": "fp16"}, session.said("BSP_EXCH_STRATEGY"))
    if wire.startswith("nccl"):
        coming.NCCL.to(draft, "nccl", session.said("BSP_EXCH_STRATEGY"))
    elif wire not in WIRES:
        draft.later(session.said("BSP_EXCH_STRATEGY"), "Theano-MPI itself knows no such strategy")
    else:
        draft.remarks.append(f"{session.said('BSP_EXCH_STRATEGY')}: ranks talk through MPI")
