"""Translation of Theano-MPI sessions: rules BSP, EASGD and GOSGD, and constants of the models."""

from pathlib import Path

from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.theano_mpi.models import GANS, TheanoModel, find_theano_model
from nnlo_lib.compat.importers.theano_mpi.session import TheanoSession

# Precision of the messages by Theano-MPI's strategy; `_exchange` also translates their route.
COMPRESSION_BY_STRATEGY = {
    "ar": "none",
    "nccl32": "none",
    "nccl16": "fp16",
    "asa32": "none",
    "asa16": "fp16",
    "copper": "none",
    "copper16": "fp16",
}


def translate_session(session: TheanoSession) -> ExperimentDraft:
    """Translate a session of Theano-MPI."""
    draft = ExperimentDraft("Imported from a Theano-MPI session:")
    draft.set(
        "name", named(f"{session.keys['MODELCLASS']}-{session.keys['RULE'].lower()}"), "model class and rule"
    )
    ranks = _machine(draft, session)
    _set_algorithm(draft, session, ranks)
    _model(draft, session, ranks)
    _exchange(draft, session)
    if "BIND" in session.keys:
        draft.remarks.append(
            f"{session.as_written('BIND')}: the profile and the launcher bind ranks to cores"
        )
    if "SIZE" in session.keys:
        draft.remarks.append(
            f"{session.as_written('SIZE')}: Theano-MPI ignores SIZE and counts the devices; nnlo does the same"
        )
    draft.given_words += [session.as_written(key) for key in session.keys]
    return draft


def _machine(draft: ExperimentDraft, session: TheanoSession) -> int:
    ranks, hosts = sum(len(devices) for _, devices in session.hosts), len(session.hosts)
    source = session.as_written("DEVICES")
    draft.set("parallel.ranks", ranks, source)
    draft.set("parallel.gpus_per_rank", 1, f"{source}; set 0 without GPUs")
    if hosts > 1:
        draft.set("resources.nodes", hosts, f"{hosts} hosts; the scheduler chooses them")
    return ranks


def _set_algorithm(draft: ExperimentDraft, session: TheanoSession, ranks: int) -> None:
    rule, source = session.keys["RULE"], session.as_written("RULE")
    # EASGD needs a server and a worker, GOSGD two peers.
    if ranks == 1 and rule != "BSP":
        draft.set("algorithm", {"name": "allreduce"}, f"{source}; a single device has no peers")
    elif rule == "EASGD":
        draft.set(
            "algorithm",
            {"name": "easgd", "sync_every": 10, "alpha": 0.5},
            f"{source}, constants of Theano-MPI",
        )
        draft.remarks.append(
            "EASGD: in Theano-MPI, tau counts files of images, each with several sub-batches; in nnlo, it counts batches. "
            "In Theano-MPI, every worker reads all samples in the same order; in nnlo, the workers share the samples. In both, "
            "the first device is the server."
        )
    elif rule == "GOSGD":
        draft.set("algorithm", {"name": "gosgd", "probability": 0.01}, f"{source}, p of Theano-MPI")
    else:
        draft.set("algorithm", {"name": "allreduce"}, source)


def _model(draft: ExperimentDraft, session: TheanoSession, ranks: int) -> None:
    file, cls = session.keys["MODELFILE"], session.keys["MODELCLASS"]
    source = f"{session.as_written('MODELFILE')}, {session.as_written('MODELCLASS')}"
    known = find_theano_model(file, cls)
    if known is None:
        path = f"{file.removesuffix('.py').replace('.', '/')}.py"
        reason = "nnlo cannot run Theano models; write a function (shape, classes, **args) that returns a torch.nn.Module"
        if Path(path).is_file():
            draft.remarks.append(f"{source}: {reason}")
            draft.set("model", {"name": f"{path}:{cls}"}, source)
        else:
            draft.set("model", {"name": f"{path}:{cls}"}, source, f"{path} does not exist; {reason}")
        draft.remarks.append(
            "Epochs, batch size, learning rates and data are constants in Theano-MPI's model file; set them in the "
            "`train` and `data` sections."
        )
        return
    of_class = f"a constant of {cls}"
    draft.set("data.dataset", known.dataset, f"the data of {cls}")
    draft.set("model", {"name": known.name, "args": known.args}, source)
    for key, value in known.extra_settings.items():
        draft.set(key, value, of_class)
    if known.dataset == "imagenet":
        draft.remarks.append(
            "ImageNet: Theano-MPI reads hickle files of 256 x 256 pixels; nnlo makes images of this size from TFRecords."
        )
    draft.set("train.epochs", known.epochs, of_class)
    draft.set("train.batch_size", known.batch, of_class)
    if cls in GANS:
        draft.remarks.append(f"{cls}: {GANS[cls]}.")
    _set_optimizer(draft, session, known, ranks)


def _set_optimizer(draft: ExperimentDraft, session: TheanoSession, known: TheanoModel, ranks: int) -> None:
    rule, source = dict(known.optimizer), f"constants of {session.keys['MODELCLASS']}"
    # Theano-MPI scales the learning rate only in BSP.
    if session.keys["RULE"] == "BSP" and ranks > 1:
        rule["lr"] = round(rule["lr"] * ranks, 12)
        source += f", learning rate times {ranks} workers"
        warm_up = {"epochs": 5, "start": round(1 / ranks, 6)}
        draft.set(
            "train.warm_up",
            warm_up,
            "BSP warms up from the rate of one worker, in Theano-MPI by equal factors",
        )
        draft.remarks.append(
            "BSP: Theano-MPI applies no weight decay and twice the learning rate to biases; nnlo treats all parameters "
            "alike."
        )
    draft.set("train.optimizer", rule, source)
    if known.schedule:
        draft.set("train.schedule", known.schedule, f"adjust_hyperp of {session.keys['MODELCLASS']}")


def _exchange(draft: ExperimentDraft, session: TheanoSession) -> None:
    sync, wire = session.keys.get("BSP_SYNC_TYPE"), session.keys.get("BSP_EXCH_STRATEGY")
    if session.keys["RULE"] != "BSP":
        draft.ineffective += [
            session.as_written(key) for key in ("BSP_SYNC_TYPE", "BSP_EXCH_STRATEGY") if key in session.keys
        ]
        return
    if sync == "swap":
        draft.add_untranslatable(
            session.as_written("BSP_SYNC_TYPE"), "no algorithm of nnlo swaps the parameters of pairs of ranks"
        )
    elif sync == "avg":
        draft.override("algorithm", {"name": "average", "sync_every": 1}, session.as_written("BSP_SYNC_TYPE"))
    elif sync and sync != "cdd":
        draft.add_untranslatable(session.as_written("BSP_SYNC_TYPE"), "Theano-MPI has no such type")
    elif sync:
        draft.remarks.append(
            f"{session.as_written('BSP_SYNC_TYPE')}: cdd averages momenta, which is equivalent to averaging gradients"
        )
    if not wire:
        return
    if COMPRESSION_BY_STRATEGY.get(wire) == "fp16":
        draft.set("compression", {"name": "fp16"}, session.as_written("BSP_EXCH_STRATEGY"))
    if wire.startswith("nccl"):
        draft.set("parallel.gpu_exchange", "nccl", session.as_written("BSP_EXCH_STRATEGY"))
    elif wire not in COMPRESSION_BY_STRATEGY:
        draft.add_untranslatable(session.as_written("BSP_EXCH_STRATEGY"), "Theano-MPI has no such strategy")
    else:
        draft.remarks.append(f"{session.as_written('BSP_EXCH_STRATEGY')}: ranks communicate through MPI")
