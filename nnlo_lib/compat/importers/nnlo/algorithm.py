"""NNLO's modes downpour, easgd and gem: the algorithm, and the optimizer that applies the updates."""

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.optimizers import set_server_optimizer, set_worker_optimizer
from nnlo_lib.compat.importers.options import ParsedOptions


def set_algorithm(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the algorithm and the optimizer that applies the updates."""
    if ranks == 1:
        draft.set(
            "algorithm", {"name": "allreduce"}, f"{options.as_written('mode')}, but one process has no master"
        )
        _worker(draft, options)
        return
    if options["mode"] in ("downpour", "sgd"):
        _server(draft, options)
    else:
        _worker(draft, options)
        if "optimizer" in options:
            draft.remarks.append(f"{options.as_written('optimizer')}: NNLO's master steps in downpour only")
    draft.set("algorithm", _algorithm(draft, options), options.as_written(*_words(options)))
    if options["sync-every"] > 1 or options["synchronous"]:
        draft.remarks.append(
            "NNLO's master counted an epoch by its updates, so that with --sync-every s (or --synchronous and n workers) "
            "its validation, stopping and checkpoints came every s (n) epochs of its workers; here an epoch is a "
            "pass over all samples."
        )


def _worker(draft: ExperimentDraft, options: ParsedOptions) -> None:
    arguments = options["worker-optimizer-params"]
    set_worker_optimizer(draft, options["worker-optimizer"], arguments, _worker_options_text(options))


def _worker_options_text(options: ParsedOptions) -> str:
    words = ["worker-optimizer-params"] if "worker-optimizer-params" in options else []
    return options.as_written("worker-optimizer", *words)


def _server(draft: ExperimentDraft, options: ParsedOptions) -> None:
    set_server_optimizer(
        draft, options["optimizer"], f"{options.as_written('optimizer')}, which the server steps with"
    )
    draft.remarks.append(
        f"{_worker_options_text(options)}: workers stepped with it and sent what changed; here they send gradients, and only the "
        "server steps."
    )


def _words(options: ParsedOptions) -> list[str]:
    wanted = [name for name in options.table if name.startswith(("elastic-force", "gem-m", "gem-k", "sync"))]
    return ["mode", *(name for name in [*wanted, "n-masters"] if name in options)]


def _algorithm(draft: ExperimentDraft, options: ParsedOptions) -> dict[str, object]:
    block: dict[str, object] = {"sync_every": options["sync-every"], "masters": options["n-masters"]}
    match options["mode"]:
        case "downpour" | "sgd":
            block = {"name": "downpour", **block, "synchronous": options["synchronous"]}
        case "easgd":
            block = {"name": "easgd", **block, "synchronous": options["synchronous"]}
            block["elastic_force"] = options["elastic-force"]
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
                    "gem takes the changes of the workers' optimizer as they are",
                )
            else:
                draft.remarks.append(
                    "NNLO multiplied the workers' steps by --gem-lr, 0.01; here they are as they are"
                )
            if options["synchronous"]:
                draft.add_untranslatable(options.as_written("synchronous"), "gem is asynchronous")
    if options["synchronous"]:
        draft.remarks.append(
            f"{options.as_written('synchronous')}: NNLO waited for 95 % and summed; here all, averaged"
        )
    return block
