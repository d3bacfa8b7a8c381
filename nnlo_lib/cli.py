"""The `nnlo` command. Nothing heavy is imported before a sub-command needs it."""

import argparse
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from nnlo_lib.errors import UserError, reported

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment, Search

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main() -> None:
    """Run a sub-command; exit status 2 and one sentence for a user's mistake."""
    parser = argparse.ArgumentParser(
        prog="nnlo",
        description="Neural network learning and optimization: one experiment file, any way of distributing.",
        epilog="The whole DAG: snakemake --profile profiles/local [--configfile FILE]",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_check(commands)
    _add_plan(commands)
    _add_run(commands)
    _add_search(commands)
    _add_simulate(commands)
    _add_data(commands)
    _add_model(commands)
    _add_verify(commands)
    _add_chaos(commands)
    _add_import(commands)
    _add_docs(commands)
    options = parser.parse_args()
    sys.exit(reported(lambda: options.command(options))())


def _for_experiment(
    commands: Commands, command: Callable[[argparse.Namespace], int | None], name: str, text: str
) -> argparse.ArgumentParser:
    """Add a sub-command that reads an experiment file."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.set_defaults(command=command)
    return parser


def _add_check(commands: Commands) -> None:
    _for_experiment(commands, _check, "check", "check an experiment file, without running anything")


def _add_plan(commands: Commands) -> None:
    text = "say what an experiment will cost, jobs, ranks and hours, before anything is submitted"
    _for_experiment(commands, _plan, "plan", text)


def _add_run(commands: Commands) -> None:
    text = "do one training of an experiment, through MPI, without Snakemake"
    run = _for_experiment(commands, _run, "run", text)
    run.add_argument("--run", help="which of `runs:`; default: the first")
    run.add_argument("--seed", type=int, help="default: the first of `seeds:`")
    run.add_argument("--fold", type=int, help="default: 0 if there are folds")
    run.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")


def _add_search(commands: Commands) -> None:
    text = "do the hyper-parameter search of an experiment, without Snakemake"
    search = _for_experiment(commands, _search, "search", text)
    search.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")
    search.add_argument(
        "--replay", action="store_true", help="train nothing: make each decision again from what it knew"
    )
    search.add_argument(
        "--executor", default="local", choices=["local", "mpi", "submitit"],
        help="local: processes of this machine; mpi: one allocation, rank 0 coordinates, blocks of ranks train; "
        "submitit: jobs of Slurm; default: %(default)s",
    )  # fmt: skip
    search.add_argument("--ranks", type=int, help="of mpi's allocation; default: as search.parallel needs")


def _add_simulate(commands: Commands) -> None:
    text = "run an experiment on the virtual machine of parallel.simulation: time to accuracy and bytes"
    simulate = _for_experiment(commands, _simulate, "simulate", text)
    simulate.add_argument("--run", help="which of `runs:`; default: all")
    simulate.add_argument("--seed", type=int, help="default: the first of `seeds:`")
    simulate.add_argument(
        "--target", type=float, help="validation accuracy to reach; default: the best that all runs reach"
    )


def _add_data(commands: Commands) -> None:
    text = "show what the data sets of an experiment hold, once converted"
    data = _for_experiment(commands, _data, "data", text)
    data.add_argument("--run", help="which of `runs:`; default: all")
    data.add_argument(
        "--seed", type=int, help="of the division among workers; default: the first of `seeds:`"
    )


def _add_model(commands: Commands) -> None:
    text = "show the layers of an experiment's models: shapes, parameters, operations; nothing is trained"
    model = _for_experiment(commands, _model, "model", text)
    model.add_argument("--run", help="which of `runs:`; default: all")


def _add_verify(commands: Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="check a finished run: checksums, each sample of each epoch used once, reproducible or not",
    )
    verify.add_argument("folder", nargs="+", help="results/<experiment>/<run>/seed-<s>, or a folder above")
    verify.add_argument("--shards", action="store_true", help="also read all of the data set's shards")
    verify.set_defaults(command=_verify)


def _add_chaos(commands: Commands) -> None:
    text = "train undisturbed, then under random faults (kill -9, SIGTERM, torn files, full disk), and compare bits"
    chaos = _for_experiment(commands, _chaos, "chaos", text)
    chaos.add_argument("--run", help="which of `runs:`; default: the first")
    chaos.add_argument("--faults", type=int, default=20, help="default: %(default)s")
    chaos.add_argument("--seed", type=int, default=0, help="of the faults; default: %(default)s")
    chaos.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")


def _add_import(commands: Commands) -> None:
    text = "translate a command of NNLO, mpi_learn, PyDTNN or Theano-MPI, or a file of DiNNO's, into an experiment"
    imported = commands.add_parser("import", help=text)
    imported.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one string, or the words as they are; or a file",
    )
    imported.set_defaults(command=_import)


def _add_docs(commands: Commands) -> None:
    docs = commands.add_parser(
        "docs", help="write the files that are generated from the configuration's types"
    )
    docs.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of step")
    docs.set_defaults(command=_docs)


def _load(options: argparse.Namespace, first: bool = False) -> tuple["Experiment", list[str]]:
    """Read the experiment and the names of the runs asked for, of all of them only the first perhaps."""
    from nnlo_lib.experiment_file import load
    from nnlo_lib.overridden import refuse_overridden

    experiment = load(options.file, options.changes)
    names = _runs(options, experiment)[: 1 if first else None]
    refuse_overridden(experiment, names, options.changes)
    return experiment, names


def _check(options: argparse.Namespace) -> None:
    from nnlo_lib.jobs import Plan

    experiment, _ = _load(options)
    plan = Plan.of(experiment)
    told = [_search_line(experiment.search)] if experiment.search else []
    if plan.jobs:
        runs = (
            f"{name} ({run.algorithm.name}, {run.parallel.ranks} ranks)" for name, run in plan.runs.items()
        )
        told.append(f"{len(plan.jobs)} trainings of {', '.join(runs)}")
    shards = sum(map(len, plan.shards.values()))
    conversions = f", after {shards:,} conversions" if shards else ""
    print(f"{options.file} is fine: {'; '.join(told)}{conversions}")
    _warn(experiment)


def _warn(experiment: "Experiment") -> None:
    """Tell of what can be, and is hardly meant."""
    from nnlo_lib.search.unseen import seen_test
    from nnlo_lib.state.speech import say

    if warning := seen_test(experiment):
        say(f"warning: {warning}")


def _search_line(search: "Search") -> str:
    folds = f" of {search.folds.k} folds" if search.folds.k > 1 else ""
    rungs = "" if search.fidelity.name == "full" else f", {search.fidelity.name}"
    keys = ", ".join(search.space)
    return f"a search by {search.method.name}{rungs} of {search.trials} trials{folds} over {keys}"


def _plan(options: argparse.Namespace) -> None:
    from nnlo_lib.tune.plan_command import plan

    experiment, _ = _load(options)
    print(plan(experiment))
    _warn(experiment)


def _run(options: argparse.Namespace) -> int:
    from nnlo_lib.single import run_one

    experiment, [name] = _load(options, first=True)
    return run_one(experiment, name, _seed(options, experiment), options.fold, options.launcher)


def _search(options: argparse.Namespace) -> int:
    from nnlo_lib.experiment_file import load
    from nnlo_lib.tune.command import replay_search, search

    experiment = load(options.file, options.changes)
    if options.replay:
        return replay_search(experiment)
    return search(experiment, options.launcher, options.executor, options.ranks)


def _simulate(options: argparse.Namespace) -> int:
    from nnlo_lib.experiment_file import load
    from nnlo_lib.simulate_command import simulate

    given, names = _load(options)
    virtual = [f"name={given.name}-simulated", "parallel.transport=simulated"]
    experiment = load(options.file, [*options.changes, *virtual])
    return simulate(experiment, names, _seed(options, experiment), options.target)


def _data(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nnlo data FILE | head` ends without a word

    from nnlo_lib.data_command import data_command

    experiment, names = _load(options)
    data_command(experiment, names, _seed(options, experiment))


def _model(options: argparse.Namespace) -> None:
    from nnlo_lib.model_command import model_command

    experiment, names = _load(options)
    model_command(experiment, names, experiment.seeds[0])


def _verify(options: argparse.Namespace) -> int:
    from nnlo_lib.verify_command import verify

    return verify(options.folder, options.shards)


def _chaos(options: argparse.Namespace) -> int:
    from nnlo_lib.chaos_command import chaos

    if options.faults < 1:
        raise UserError("--faults: at least 1")
    experiment, [name] = _load(options, first=True)
    return chaos(experiment, name, options.seed, options.faults, options.launcher)


def _import(options: argparse.Namespace) -> None:
    from nnlo_lib.translate.translate import translate

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UserError("import what? nnlo import 'mpirun -np 3 TrainingDriver ...', or a file")
    print(translate(words), end="")


def _runs(options: argparse.Namespace, experiment: "Experiment") -> list[str]:
    """Return the names of the runs, or the one asked for."""
    names, wanted = list(experiment.variants), getattr(options, "run", None)
    if wanted and wanted not in names:
        raise UserError(f"{options.file} has no run '{wanted}'; it has {', '.join(names)}")
    return [wanted] if wanted else names


def _seed(options: argparse.Namespace, experiment: "Experiment") -> int:
    return experiment.seeds[0] if options.seed is None else options.seed


def _docs(options: argparse.Namespace) -> int:
    from nnlo_lib.reference import write_all

    return write_all(options.check)
