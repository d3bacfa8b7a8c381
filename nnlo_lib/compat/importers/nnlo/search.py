"""NNLO's OptimizationDriver: a search over the arguments of a model (nnlo/OptimizationDriver.py)."""

from nnlo_lib.compat.importers.command_line import CommandLine
from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.networks import GAN, ImportedNetwork
from nnlo_lib.compat.importers.nnlo.options import OPTIONS as TRAINING
from nnlo_lib.compat.importers.nnlo.training import PLACEMENT_NOTE, set_training
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option
from nnlo_lib.core.errors import UserError

OPTIONS = {
    **TRAINING,
    "trial-name": OptionSpec(default="search"),
    "block-size": OptionSpec(int, 2),
    "n-fold": OptionSpec(int, 1, "search.folds.k"),
    "num-iterations": OptionSpec(int, 10),
    "hyper-opt": OptionSpec(default="bayesian"),
    "ga-populations": OptionSpec(int, 10),
    "opt-restore": flag_option("the same command again goes on where it stopped"),
    "target-objective": OptionSpec(float),
    "example": OptionSpec(default="mnist"),
}


def translate_search(command: CommandLine) -> ExperimentDraft:
    """Translate a command of OptimizationDriver. Raises UserError."""
    draft = ExperimentDraft(
        f"NNLO's OptimizationDriver, imported: nnlo search FILE --executor mpi --ranks {command.ranks}"
    )
    options = ParsedOptions("OptimizationDriver", OPTIONS, command.words)
    if options["model"] is None:
        options.copy_from("model", "example")
    size = _blocks(draft, options, command.ranks)
    _method(draft, options)
    found = set_training(draft, options, size)
    _objective(draft, options, found)
    _space(draft, found)
    draft.remarks.extend(f"{place}: {PLACEMENT_NOTE}" for place in command.placement_options)
    return draft


def _blocks(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> int:
    """Set size and number of the rank groups, and return the size.

    A rank group trains one fold; NNLO's block of ranks trains all folds of a trial at the same time. Raises
    UserError if the ranks cannot be divided as requested.
    """
    whole, folds = int(options["block-size"]), int(options["n-fold"])
    blocks, size = (ranks - 1) // whole, whole // folds
    if blocks < 1 or (ranks - 1) % whole or size < 1:
        raise UserError(
            f"OptimizationDriver: {ranks} ranks are one coordinator and {ranks - 1} others, which blocks of "
            f"{whole} with {folds} folds do not divide"
        )
    said = options.as_written("block-size") + (f" / {folds} folds" if folds > 1 else "")
    draft.set("search.blocks", {"size": size}, said)
    draft.set("search.parallel", blocks * folds, f"{ranks} processes, {said}")
    if folds > 1:
        draft.remarks.append(
            f"{options.as_written('n-fold')}: NNLO's block trains all folds of a trial at a time, each on {size} of its ranks, "
            "and cuts folds by files; here a block trains one fold, and folds are cut by samples, stratified."
        )
    return size


def _method(draft: ExperimentDraft, options: ParsedOptions) -> None:
    trials, said = options["num-iterations"], options.as_written("num-iterations")
    if options["hyper-opt"] == "genetic":
        population = options["ga-populations"]
        method, trials = {"name": "genetic", "population": population}, trials * population
        said += f" generations of {options.as_written('ga-populations')}"
    else:
        method = {"name": {"bayesian": "gp"}.get(options["hyper-opt"], options["hyper-opt"])}
    draft.set("search.method", method, options.as_written("hyper-opt"))
    draft.set("search.trials", trials, said)


def _objective(draft: ExperimentDraft, options: ParsedOptions, found: ImportedNetwork) -> None:
    """Set the objective.

    NNLO's figure of merit is 1 - val_acc of the root in the last epoch; for a GAN, it is the difference
    between the losses of its networks.
    """
    if found is GAN:
        draft.set(
            "search.objective", {"metric": "val_distance", "epoch": "last"}, options.as_written("model")
        )
        draft.remarks.append(
            "NNLO minimizes the difference between the losses of the GAN's networks in the last epoch; here it is the "
            "distance, by which its critic tells real from made showers."
        )
        return
    objective, said = (
        {"metric": "val_accuracy", "epoch": "last"},
        "NNLO's figure of merit, 1 - val_acc of the last epoch",
    )
    if options["target-objective"] is not None:
        objective |= {"target": round(1 - options["target-objective"], 12)}
        said = f"{options.as_written('target-objective')}, as accuracy: {said}"
    draft.set("search.objective", objective, said)
    draft.remarks.append(
        "NNLO minimizes its figure of merit, 1 - val_acc; here val_accuracy itself is maximized."
    )


def _space(draft: ExperimentDraft, found: ImportedNetwork) -> None:
    """Set the search space of NNLO's own networks; a user's file defines its parameter_range itself."""
    if found.is_user_file:
        return
    rate = {"train.optimizer.lr": {"log_uniform": [1e-4, 1e-2]}}
    if found.space:
        space = {f"model.args.{name}": dimension for name, dimension in found.space.items()}
        draft.set("search.space", space, "the parameter_range of NNLO's model")
    else:
        draft.set(
            "search.space",
            rate,
            "NNLO searches arguments of its model only; write `model.args.<name>` for those",
        )
