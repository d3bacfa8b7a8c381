"""NNLO's OptimizationDriver: a search over the arguments of a model."""

from nnlo_lib.compat.importers.command import set_launch_keys
from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.job_text import StartedCommand
from nnlo_lib.compat.importers.nnlo import OPTIONS as NNLO_OPTIONS
from nnlo_lib.compat.importers.nnlo import set_training
from nnlo_lib.compat.importers.nnlo_networks import GAN, ImportedNetwork
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option
from nnlo_lib.core.errors import UserError

OPTIONS = {
    **NNLO_OPTIONS,
    "trial-name": OptionSpec(default="search"),
    "block-size": OptionSpec(int, 2),
    "n-fold": OptionSpec(int, 1, "search.folds.k"),
    "num-iterations": OptionSpec(int, 10),
    "hyper-opt": OptionSpec(default="bayesian"),
    "ga-populations": OptionSpec(int, 10),
    "opt-restore": flag_option("run the same nnlo command again to resume the search"),
    "target-objective": OptionSpec(float),
    "example": OptionSpec(default="mnist"),
}


def translate_search(command: StartedCommand) -> ExperimentDraft:
    """Translate a command of OptimizationDriver. Raises UserError if the ranks cannot be divided into blocks."""
    draft = ExperimentDraft(
        f"Imported from NNLO's OptimizationDriver; start: nnlo search FILE --executor mpi --ranks {command.ranks[0]}"
    )
    options = ParsedOptions("OptimizationDriver", OPTIONS, command.options)
    if options["model"] is None:
        # Without --model, --example names one of NNLO's own models.
        options.copy_from("model", "example")
    # parallel.ranks is not set from the command: a training has the ranks of one rank group.
    set_launch_keys(draft, command, "search")
    size = _blocks(draft, options, command.ranks[0])
    _method(draft, options)
    network = set_training(draft, options, size)
    _objective(draft, options, network)
    if network.is_user_file:  # which defines its own parameter_range
        return draft
    space = {name if "." in name else f"model.args.{name}": limits for name, limits in network.space.items()}
    source = "the parameter_range of NNLO's model"
    if not space:
        space = {"train.optimizer.lr": {"log_uniform": [1e-4, 1e-2]}}
        source = "the original NNLO searches only arguments of the model; add them as `model.args.<name>`"
    draft.set("search.space", space, source)
    draft.note(*filter(None, [network.space_note]))
    return draft


def _blocks(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> int:
    """Set the size and number of the rank groups, and return the size; `ranks` includes the coordinator.

    A rank group trains one fold. A block of ranks of the original NNLO trains all folds of a trial in parallel.
    """
    whole, folds = int(options["block-size"]), int(options["n-fold"])
    blocks, size = (ranks - 1) // whole, whole // folds
    if blocks < 1 or (ranks - 1) % whole or size < 1:
        raise UserError(
            f"OptimizationDriver: {ranks} ranks (one coordinator and {ranks - 1} workers) cannot be divided into blocks "
            f"of {whole} ranks with {folds} folds each; start 1 + n * {whole} ranks, with --n-fold <= --block-size"
        )
    source = options.as_written("block-size") + (f" / {folds} folds" if folds > 1 else "")
    draft.set("search.blocks", {"size": size}, source)
    draft.set("search.parallel", blocks * folds, f"{ranks} processes, {source}")
    if folds > 1:
        draft.note(
            f"{options.as_written('n-fold')}: a block of the original NNLO trains all folds of a trial in parallel, each on "
            f"{size} of its ranks, and a fold is a set of files; in nnlo, a rank group trains one fold, and a fold is a "
            "stratified set of samples."
        )
    return size


def _method(draft: ExperimentDraft, options: ParsedOptions) -> None:
    trials, source = options["num-iterations"], options.as_written("num-iterations")
    if options["hyper-opt"] == "genetic":
        population = options["ga-populations"]
        # NNLO counts generations; nnlo counts trials.
        method, trials = {"name": "genetic", "population": population}, trials * population
        source += f" generations of {options.as_written('ga-populations')}"
    else:
        method = {"name": {"bayesian": "auto"}.get(options["hyper-opt"], options["hyper-opt"])}
    draft.set("search.method", method, options.as_written("hyper-opt"))
    draft.set("search.trials", trials, source)


def _objective(draft: ExperimentDraft, options: ParsedOptions, network: ImportedNetwork) -> None:
    """Set the objective.

    The original NNLO's figure of merit is 1 - val_acc of rank 0 in the last epoch. For a GAN, it is the
    difference between the losses of its networks.
    """
    if network is GAN:
        source = f"{options.as_written('model')}: the difference between the losses of critic and generator"
        draft.set("search.objective", {"metric": "val_loss_gap", "epoch": "last"}, source)
        metrics = ["distance", "critic_loss", "generator_loss", "loss_gap"]
        draft.set("metrics", metrics, "for search.objective")
        return
    objective: dict[str, object] = {"metric": "val_accuracy", "epoch": "last"}
    source = "the original NNLO's figure of merit, 1 - val_acc of the last epoch"
    if options["target-objective"] is not None:
        # Rounding keeps the floating-point error of the difference out of the experiment file.
        objective["target"] = round(1 - options["target-objective"], 12)
        source = f"{options.as_written('target-objective')}, as accuracy: {source}"
    draft.set("search.objective", objective, source)
    draft.note("The original NNLO minimizes its figure of merit, 1 - val_acc; nnlo maximizes val_accuracy.")
