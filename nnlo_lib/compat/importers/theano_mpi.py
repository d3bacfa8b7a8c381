"""Theano-MPI's sessions: .cfg files, options of tmlauncher and Python scripts with a rule, its models and their constants."""

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

KEYS = {"RULE", "MODELFILE", "MODELCLASS", "DEVICES", "BSP_SYNC_TYPE", "BSP_EXCH_STRATEGY", "BIND", "SIZE"}
OPTION_KEYS = {
    "file": "MODELFILE", "modelfile": "MODELFILE", "class": "MODELCLASS", "modelclass": "MODELCLASS", "r": "RULE",
    "rule": "RULE", "s": "SIZE", "size": "SIZE", "bsp_sync_type": "BSP_SYNC_TYPE", "cfg": "", "config": "",
    "bsp_exch_strategy": "BSP_EXCH_STRATEGY", "b": "BIND", "bind": "BIND",
}  # fmt: skip
# Algorithm of each rule, and the source of its constants.
RULES: dict[str, tuple[dict[str, Any], str]] = {
    "BSP": ({"name": "allreduce"}, ""),
    "EASGD": ({"name": "easgd", "sync_every": 10, "alpha": 0.5}, ", constants of Theano-MPI"),
    "GOSGD": ({"name": "gosgd", "probability": 0.01}, ", p of Theano-MPI"),
}
ATTRIBUTES = {"sync_type": "BSP_SYNC_TYPE", "exch_strategy": "BSP_EXCH_STRATEGY"}
# All-to-all and trees were routes for the same sums; the names that end with 16 send half precision.
STRATEGIES = ("ar", "nccl32", "nccl16", "asa32", "asa16", "copper", "copper16")
NOTES = {
    "BIND": "the profile and the launcher bind ranks to cores",
    "SIZE": "Theano-MPI ignores SIZE and counts the devices; nnlo does the same",
}


class TheanoModel(NamedTuple):
    """A model with the constants of its file; the learning rate and `batch`, the samples of a step, are those of a worker."""

    name: str
    dataset: str
    epochs: int
    batch: int
    optimizer: dict[str, Any]
    schedule: dict[str, Any] | None = None
    args: dict[str, Any] | None = None
    extra_settings: dict[str, Any] | None = None  # other keys of the experiment


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
    "AlexNet": TheanoModel("alexnet_2012", "imagenet", 70, 128, _sgd(0.01, 5e-4), _tenths(20, 40, 60), None, _imagenet(227)),
    "GoogLeNet": TheanoModel(
        "googlenet", "imagenet", 90, 32, _sgd(0.005, 2e-4), {"name": "polynomial", "power": 0.5},
        {"auxiliary": True}, {"loss_weights": {"1": 0.3, "2": 0.3}} | _imagenet(224),
    ),
    "VGG16": TheanoModel("vgg16", "imagenet", 40, 64, _sgd(0.002, 5e-4), _tenths(15, 30, 35), None, _imagenet(224)),
    "ResNet50": TheanoModel("resnet50", "imagenet", 90, 32, *RESNET, None, _imagenet(224)),
    "ResNet152": TheanoModel("resnet152", "imagenet", 90, 32, *RESNET, None, _imagenet(224)),
    "Cifar10_model": TheanoModel(
        "theanompi_cifar10", "cifar10", 70, 256, _sgd(0.01, 1e-4), _tenths(50, 60, 65), None,
        {"data.crop": 28, "data.augment.flip": 0.5, "data.normalize": "standard"},
    ),
    "Wide_ResNet": TheanoModel(
        "wide_resnet", "cifar10", 90, 128, {"name": "adam", "lr": 0.001}, _tenths(50, 70, 90),
        {"widen": 4, "dropout": 0.3},
    ),
    "LSTM": TheanoModel("lstm", "imdb", 100, 16, {"name": "adadelta", "lr": 1.0}),
    "WGAN": TheanoModel(
        "wgan", "mnist", 100, 64, {"name": "rmsprop", "lr": 5e-5}, None, None,
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


@dataclass(frozen=True)
class TheanoSession:
    """Keys of a session, and the original text of those that are not written as KEY=value."""

    keys: dict[str, str]
    written: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("RULE", "MODELFILE", "MODELCLASS", "DEVICES"):
            if not self.keys.get(key):
                raise UserError(
                    f"the Theano-MPI session lacks the required key {key}; set {key} in the session"
                )
        if (rule := self.keys["RULE"]) not in RULES:
            raise UserError(f"RULE: Theano-MPI has no rule '{rule}'; {suggest_name(rule, RULES)}")

    def as_written(self, key: str) -> str:
        """Return the original text of a key."""
        return self.written.get(key, f"{key}={self.keys.get(key, '')}")

    @property
    def hosts(self) -> list[list[str]]:
        """Devices of each host, parsed from `cuda0,cuda1` or `node0:cuda0 node1:cuda0,cuda1`."""
        return [group.rpartition(":")[2].split(",") for group in self.keys["DEVICES"].split()]


def session_from_options(words: Sequence[str]) -> TheanoSession:
    """Parse tmlauncher's options, of which the keys of its file take precedence. Raises UserError if one is unknown."""
    keys: dict[str, str] = {}
    files: list[str] = []
    for word in words:
        written, equals, value = word.partition("=")
        name = written.lstrip("-")
        if not word.startswith("-") or name not in OPTION_KEYS:
            raise UserError(f"tmlauncher: unknown option {written}; {suggest_name(name, OPTION_KEYS)}")
        if name in ("cfg", "config"):
            files.append(value)
        elif equals or name in ("b", "bind"):
            keys[OPTION_KEYS[name]] = value or "yes"
    for name in files:
        keys |= session_from_cfg(Path(name)).keys
    return TheanoSession(keys)


def session_from_cfg(path: Path) -> TheanoSession:
    """Parse a .cfg file, which Theano-MPI reads with bash: KEY=value, KEY=("a" "b")."""
    keys = {}
    # Parsed and not sourced, so that an import executes nothing; an array may extend over several lines.
    text = re.sub(r"=\(([^)]*)\)", lambda array: "=" + " ".join(array[1].split()), _text(path))
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or name not in KEYS:
            raise UserError(f"{path}:{number}: unknown session key '{name}'; {suggest_name(name, KEYS)}")
        try:
            keys[name] = " ".join(shlex.split(value, comments=True))
        except ValueError as error:
            raise UserError(f"{path}:{number}: cannot parse the value ({error}); check its quotes") from error
    return TheanoSession(keys)


def session_from_python(path: Path) -> TheanoSession:
    """Parse a Python session: rule = BSP(); rule.init(devices=..., modelfile=..., modelclass=...)."""
    try:
        # Parsed and not imported, because Theano-MPI starts its ranks when the script runs.
        tree = ast.parse(_text(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: cannot parse the Python session: {error.msg}") from error
    keys, written = {}, {}
    for node in ast.walk(tree):
        for key, value in _python_keys(node):
            keys[key], written[key] = value, ast.unparse(node).splitlines()[0]
    return TheanoSession(keys, {key: text for key, text in written.items() if len(text) < 60})


def _python_keys(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in RULES:
            yield "RULE", name
        case ast.Call(func=ast.Attribute(attr="init")):
            for each in node.keywords:
                key = str(each.arg).upper()
                if key not in KEYS:
                    raise UserError(
                        f"rule.init(): unknown argument '{each.arg}'; use devices, modelfile and modelclass"
                    )
                yield key, _joined(each.value)
        case ast.Assign(targets=[ast.Attribute(attr=name)]) if name in ATTRIBUTES:
            yield ATTRIBUTES[name], _joined(node.value)


def _joined(node: ast.expr) -> str:
    try:
        value = ast.literal_eval(node)
    except ValueError as error:
        raise UserError(
            f"cannot evaluate {ast.unparse(node)}; write literal values (strings, lists) in the session"
        ) from error
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def is_python_session(path: Path) -> bool:
    """Return True if a file is a Python session of Theano-MPI, which imports theanompi."""
    return path.suffix == ".py" and path.is_file() and bool(re.search(r"\btheanompi\b", _text(path)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


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
    # EASGD needs a server and a worker, GOSGD two peers.
    has_peers = ranks > 1 or rule == "BSP"
    block, constants = RULES[rule] if has_peers else (RULES["BSP"][0], "; a single device has no peers")
    draft.set("algorithm", block, f"{session.as_written('RULE')}{constants}")
    if block["name"] == "easgd":
        draft.note(
            "EASGD: in Theano-MPI, tau counts files of images, each with several sub-batches; in nnlo, it counts batches. "
            "In Theano-MPI, every worker reads all samples in the same order; in nnlo, the workers share the samples. In both, "
            "the first device is the server."
        )
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
    draft.set("model", {"name": known.name, "args": known.args or {}}, words)
    constants = {
        "train.epochs": known.epochs,
        "train.batch_size": known.batch,
        **(known.extra_settings or {}),
    }
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
    elif sync:
        swap = "no algorithm of nnlo swaps the parameters of pairs of ranks"
        draft.lose(source, swap if sync == "swap" else "Theano-MPI has no such type")
    wire, source = session.keys.get("BSP_EXCH_STRATEGY"), session.as_written("BSP_EXCH_STRATEGY")
    if wire and wire not in STRATEGIES:
        draft.lose(source, "Theano-MPI has no such strategy")
    elif wire:
        if wire.endswith("16"):
            draft.set("compression", {"name": "fp16"}, source)
        if wire.startswith("nccl"):
            draft.set("parallel.gpu_exchange", "nccl", source)
        else:
            draft.note(f"{source}: ranks communicate through MPI")
