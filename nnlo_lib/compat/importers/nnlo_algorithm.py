"""Modes downpour, easgd and gem of the original NNLO: algorithm, and optimizer that applies the updates."""

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.keras_names import set_server_optimizer, set_worker_optimizer
from nnlo_lib.compat.importers.options import ParsedOptions


def set_algorithm(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the algorithm and the optimizer that applies the updates."""
    if ranks == 1:
        draft.set(
            "algorithm",
            {"name": "allreduce"},
            f"{options.as_written('mode')}; a single process has no master",
        )
        _worker(draft, options)
        return
    if options["mode"] in ("downpour", "sgd"):
        _server(draft, options)
    else:
        _worker(draft, options)
        if "optimizer" in options:
            draft.remarks.append(
                f"{options.as_written('optimizer')}: no effect, because NNLO's master applies an optimizer only in downpour"
            )
    used = [name for name in options.table if name.startswith(("elastic-force", "gem-m", "gem-k", "sync"))]
    words = ["mode", *(name for name in [*used, "n-masters"] if name in options)]
    draft.set("algorithm", _algorithm(draft, options), options.as_written(*words))
    if options["sync-every"] > 1 or options["synchronous"]:
        draft.remarks.append(
            "The master of the original NNLO counts epochs by its updates. With --sync-every s (or --synchronous and n "
            "workers), it validates, stops and writes checkpoints only every s (or n) epochs of the workers. In nnlo, an "
            "epoch is a pass over all samples."
        )


def _worker(draft: ExperimentDraft, options: ParsedOptions) -> None:
    arguments, source = options["worker-optimizer-params"], _worker_options_text(options)
    elastic = _elastic_words(options)
    if elastic and options["worker-optimizer"].lower() == "sgd":
        # The momentum of the workers' SGD in mpi_learn is Nesterov's.
        momentum = options["elastic-momentum"]
        nesterov = {"momentum": momentum, "nesterov": True} if momentum else {}
        arguments = {"learning_rate": options["elastic-lr"], **nesterov} | arguments
        source += f", {options.as_written(*elastic)}"
    elif elastic:
        draft.ineffective.append(
            f"{options.as_written(*elastic)} (mpi_learn reads it only with --worker-optimizer sgd)"
        )
    set_worker_optimizer(draft, options["worker-optimizer"], arguments, source)


def _elastic_words(options: ParsedOptions) -> list[str]:
    """Return the given options of mpi_learn's workers; those of NNLO have a note, because it never uses them."""
    known = ("elastic-lr", "elastic-momentum")
    return [name for name in known if name in options and not options.table[name].note]


def _worker_options_text(options: ParsedOptions) -> str:
    words = ["worker-optimizer-params"] if "worker-optimizer-params" in options else []
    return options.as_written("worker-optimizer", *words)


def _server(draft: ExperimentDraft, options: ParsedOptions) -> None:
    set_server_optimizer(
        draft, options["optimizer"], f"{options.as_written('optimizer')}, applied by the server"
    )
    draft.remarks.append(
        f"{_worker_options_text(options)}: in the original NNLO, workers apply this optimizer and send the change of their "
        "weights; in nnlo, workers send gradients, and only the server applies an optimizer."
    )
    if elastic := _elastic_words(options):
        draft.add_untranslatable(
            options.as_written(*elastic),
            "it scales the gradients that workers send in this mode; set `train.optimizer.lr`",
        )


def _algorithm(draft: ExperimentDraft, options: ParsedOptions) -> dict[str, object]:
    block: dict[str, object] = {"sync_every": options["sync-every"], "masters": options["n-masters"]}
    match options["mode"]:
        # mpi_learn's name of downpour is sgd.
        case "downpour" | "sgd":
            block = {"name": "downpour", **block, "synchronous": options["synchronous"]}
        case "easgd":
            block = {"name": "easgd", **block, "synchronous": options["synchronous"]}
            block["elastic_force"] = options["elastic-force"]
        # gem, or an unknown mode, which the validation of the draft rejects.
        case mode:
            block = {
                "name": mode,
                **block,
                "momentum": options["gem-momentum"],
                "kappa": options["gem-kappa"],
            }
            if "gem-lr" in options:
                draft.add_untranslatable(
                    options.as_written("gem-lr"),
                    "gem applies the updates of the workers' optimizer without a factor",
                )
            else:
                draft.remarks.append(
                    "The original NNLO multiplies the updates of the workers by --gem-lr (default 0.01); nnlo does not "
                    "scale them."
                )
            if options["synchronous"]:
                draft.add_untranslatable(options.as_written("synchronous"), "gem is asynchronous in nnlo")
    if options["synchronous"]:
        draft.remarks.append(
            f"{options.as_written('synchronous')}: the master of the original NNLO waits for 95 % of the workers and sums "
            "their updates; nnlo waits for all workers and averages their updates."
        )
    return block
