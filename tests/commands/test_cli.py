"""The command line: output, errors and exit statuses of the commands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.nnlo_command import REPOSITORY, nnlo, refused
from helpers.requires import absent, optional

from nnlo_lib.cli import COMMANDS, _parser
from nnlo_lib.commands.arguments import OTHER_COMMANDS

pytestmark = pytest.mark.processes  # where Slurm is installed, `nnlo check` runs sinfo

HEAVY = {"torch", "pydantic", "numpy", "yaml", "h5py", "mpi4py", "sklearn", "pandas"}


def test_the_installed_command_prints_help_without_heavy_imports(tmp_path):
    command = Path(sys.executable).parent / "nnlo"
    if not command.exists():
        absent("the package is not installed beside this python")
    (tmp_path / "sitecustomize.py").write_text(
        f"import atexit, sys\n"
        f"atexit.register(lambda: print(*{HEAVY!r}.intersection(sys.modules), file=sys.stderr))\n"
    )
    done = subprocess.run(
        [command, "--help"], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert "check" in done.stdout
    assert done.stderr.split() == []


def test_check_of_the_default_experiment():
    done = nnlo("check", "config/config.yaml")
    assert done.returncode == 0
    assert done.stdout == (
        "config/config.yaml is valid: 6 trainings of allreduce (allreduce, 2 ranks), downpour (downpour, 3 ranks)\n"
    )


def test_check_of_a_wrong_experiment_does_not_need_torch(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\natexit.register(lambda: print('torch' in sys.modules))\n"
    )
    (tmp_path / "mine.yaml").write_text("epochs: 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "nnlo_lib.cli", "check", "mine.yaml"], capture_output=True, text=True, check=False,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "False\n")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_has_a_description_and_an_example(command, capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args([command, "--help"])
    usage, description, *_, example = capsys.readouterr().out.strip().split("\n\n")
    assert usage.startswith("usage: nnlo ")
    assert description.endswith(".")
    name, *words = shlex.split(example.removeprefix("example: ").partition(" > ")[0])
    assert (name, words[0]) == ("nnlo", command)
    if "--help" not in words:
        _parser().parse_args(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("chek x.yaml", "unknown: 'chek'; did you mean 'check'?; one of: init, check, plan, "),
        ("trian x.yaml", "unknown: 'trian'; did you mean 'run'?"),
        ("task evalute", "unknown: 'evalute'; did you mean 'evaluate'?"),
        ("run x.yaml --sed=3", "unrecognized arguments: --sed=3; did you mean '--seed'?"),
        (
            "search x.yaml --executor loc",
            "unknown: 'loc'; did you mean 'local'?; one of: local, mpi, submitit",
        ),
        ("check x.yaml y.yaml", "unrecognized arguments: y.yaml\n"),
    ],
)
def test_the_nearest_command_or_option_is_suggested(words, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        _parser().parse_args(words.split())
    assert told in capsys.readouterr().err
    assert set(OTHER_COMMANDS.values()) <= {*COMMANDS, "python benchmarks/chaos.py"}


def test_the_shell_completes_commands_options_and_files(capsys):
    optional("shtab")
    with pytest.raises(SystemExit, match="0"):
        _parser().parse_args(["--print-completion", "bash"])
    script = capsys.readouterr().out
    for typed, number, found in (("sear", 1, "search"), ("run --se", 2, "--set --seed")):
        ask = f"COMP_WORDS=(nnlo {typed}); COMP_CWORD={number}; _shtab_nnlo; echo ${{COMPREPLY[@]}}"
        bash = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        assert bash.stdout.strip() == found


BAD = {
    "unknown key": (b"name: x\ntrian: {}\n", "the experiment cannot run\n  mine.yaml:2: trian: unknown key"),
    "impossible combination": (b"parallel:\n  ranks: 1\nalgorithm: {name: downpour}\n", "mine.yaml:2: parallel.ranks: "),
    "not YAML": (b"name: [", "mine.yaml:1: invalid YAML: "),
    "binary": (bytes(range(128, 256)), "mine.yaml:1: invalid YAML: "),
    "name of a file": (b"runs: {report.html: {}}\n", "mine.yaml:1: runs.report.html: this name is reserved for a file of the experiment; rename the run"),
    "no mapping": (b"- 1", "mine.yaml:1: an experiment must be a mapping"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "told"), BAD.values(), ids=BAD)
def test_a_bad_file_is_named_before_anything_runs(tmp_path, content, told):
    (tmp_path / "mine.yaml").write_bytes(content)
    for command in ("check", "run"):
        assert told in refused(nnlo(command, "mine.yaml", folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_an_absent_file_and_a_folder_are_named(tmp_path):
    assert refused(nnlo("check", "no.yaml", folder=tmp_path)) == (
        "cannot read the experiment file no.yaml: No such file or directory\n"
    )
    assert "Is a directory" in refused(nnlo("check", ".", folder=tmp_path))


def test_a_bad_change_is_named():
    told = refused(nnlo("check", "config/config.yaml", "--set", "train.epochs=0"))
    assert "--set train.epochs=0: train.epochs: should be greater than or equal to 1" in told


def test_an_absent_run_is_named():
    told = refused(nnlo("run", "config/config.yaml", "--run", "downpor"))
    assert told == "--run: config/config.yaml has no run 'downpor'; choose from allreduce, downpour\n"


def test_a_launcher_with_an_open_quotation():
    done = nnlo("run", "config/config.yaml", "--launcher", "mpiexec -hosts 'a b")
    assert done.returncode == 2
    told = "argument --launcher: mpiexec -hosts 'a b: No closing quotation; close the quotation"
    assert done.stderr.splitlines()[-1].endswith(told)


def test_a_closed_pipe_ends_the_command_without_an_error(tmp_path):
    """`nnlo plan` exits with status 141 and no error text if the reader closes the pipe, as in `| head`."""
    (tmp_path / "mine.yaml").write_text("search: {space: {train.batch_size: [8, 9]}}\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from nnlo_lib.cli import main; main()", "plan", "mine.yaml"],
        cwd=tmp_path, env=os.environ | {"PYTHONUNBUFFERED": "", "PYTHONPATH": str(REPOSITORY)},
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=200, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["check", "plan"])
@pytest.mark.parametrize(("more", "warned"), [("", True), (", folds: {k: 2}", False)])
def test_a_test_split_that_selects_the_best_trial_is_warned_of(tmp_path, command, more, warned):
    (tmp_path / "mine.yaml").write_text(
        f"data: {{validation: test}}\nsearch: {{space: {{train.batch_size: [8, 9]}}{more}}}\n"
    )
    done = nnlo(command, "mine.yaml", folder=tmp_path)
    assert done.returncode == 0
    assert ("nnlo: warning: data.validation: the test split selects" in done.stderr) == warned


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_grid_with_more_points_than_trials_is_warned_of(tmp_path, command):
    space = "{train.optimizer.lr: {log_uniform: [1e-4, 1e-1]}, train.batch_size: {integer: [8, 12]}}"
    search = f"search: {{method: {{name: grid}}, space: {space}"
    (tmp_path / "whole.yaml").write_text(f"{search}}}\n")
    (tmp_path / "cut.yaml").write_text(f"{search}, trials: 20}}\n")
    whole, cut = (nnlo(command, file, folder=tmp_path) for file in ("whole.yaml", "cut.yaml"))
    assert "25 trials" in whole.stdout
    assert "warning" not in whole.stderr
    assert "of the grid, 20 of 25 points are tried (search.trials: 20); remove search.trials" in cut.stderr


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_a_search_is_not_run_as_an_experiment(tmp_path, command):
    (tmp_path / "mine.yaml").write_text("search: {space: {train.batch_size: [8, 9]}}\n")
    told = refused(nnlo(command, "mine.yaml", folder=tmp_path))
    assert told == "the experiment has a `search:` section and no `runs:`; run it with `nnlo search FILE`\n"


def test_the_first_fold_is_simulated(tmp_path):
    small = "model: {name: simplemlp, args: {hidden: 4}}\ntrain: {epochs: 1, batch_size: 500}\nparallel: {ranks: 2}\nfolds: 2\n"
    (tmp_path / "mine.yaml").write_text(f"name: mine\n{small}")
    done = nnlo("simulate", "mine.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "virtual time until val_accuracy reaches" in done.stdout
    assert (tmp_path / "results/mine-simulated/allreduce/seed-0/fold-0/summary.json").exists()


def test_runs_that_could_not_be_compared_are_not_simulated(tmp_path):
    runs = "runs: {one: {}, other: {data: {validation: 0}}, third: {metrics: [cross_entropy]}}\n"
    (tmp_path / "mine.yaml").write_text(f"name: mine\nparallel: {{ranks: 2}}\n{runs}")
    told = refused(nnlo("simulate", "mine.yaml", folder=tmp_path))
    assert (
        told == "run other: data.validation is 0, so val_accuracy is not measured; set it, such as to 0.1\n"
    )
    told = refused(nnlo("simulate", "mine.yaml", "--set", "runs.other.data.validation=0.2", folder=tmp_path))
    assert told.startswith("run third: val_accuracy, the metric that compares the runs, is not measured")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "arguments", [(), ("chekc", "x.yaml"), ("check",), ("run", "x.yaml", "--seed", "one")]
)
def test_wrong_usage_prints_the_usage(arguments):
    done = nnlo(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: nnlo")


def test_a_change_that_the_run_overrides_is_refused(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("runs: {one: {parallel: {ranks: 1}}, two: {}}\n")
    told = refused(nnlo("run", str(path), "--run", "one", "--set", "parallel.ranks=8", folder=tmp_path))
    assert "runs.one.parallel.ranks is 1; use --set runs.one.parallel.ranks=8" in told
    assert nnlo("check", str(path), "--set", "parallel.ranks=8", folder=tmp_path).returncode == 0


def test_nnlo_all_without_a_file_names_the_one_of_nnlo_init(tmp_path):
    assert "name the experiment file, such as the one of nnlo init: nnlo all config/config.yaml" in refused(
        nnlo("all", folder=tmp_path)
    )
