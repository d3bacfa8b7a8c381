"""Check the sizes, locations and names of the modules of nnlo_lib."""

import ast
from collections import Counter, defaultdict

import pytest
from helpers.source_tree import MODULES, PACKAGE, classes, repeated, short, tree

MAX_LINES = 400
MIN_LINES = 80
MAX_FILES_IN_FOLDER = 23
MAX_DEPTH = 3  # nnlo_lib/<package>/<room>/<module>.py
# Modules below MIN_LINES, with their reasons.
SMALL = {
    "experiment/owner.py": "Snakemake, nnlo run and nnlo search record and compare it",
    "report/made_from.py": "each start of the workflow reads it, without pandas",
    "batch/scheduler_query.py": "the one way to run a command of a batch system, for the queues, jobs and launchers",
    "commands/generate.py": "the commands that write derived files",
    "compat/importers/mpi_learn.py": "each imported system has a module",
    "train/replica/averaged_weights.py": "trainer, evaluator and checkpoint of a training each use it",
    "train/callback.py": "the interface between trainer, replica and observers; each imports it",
    "core/failpoints.py": "all layers import it, and it imports nothing",
    "batch/surroundings.py": "the variables of sbatch and srun; launcher, executors and doctor import it",
    "core/rng.py": "all layers import it",
    "core/shadowed_packages.py": "runs before any other import",
    "core/installation.py": "the build of the package reads it",
    "data/lidar/scanner.py": "the robot's instrument, apart from the plan that it scans",
    "data/readers/lidar.py": "each reader is the module of its name",
    "data/readers/scikit_learn.py": "each reader is the module of its name",
    "data/readers/synthetic.py": "each reader is the module of its name",
    "launch/fork_client.py": "a program of its own, which starts with each process of a job",
    "data/store_settings.py": "the configuration imports it; it imports no file format",
    "executors/submitit/job.py": "pickles of submitit name its path",
    "models/layer_table_text.py": "the report imports it, without torch",
    "models/zoo_registry.py": "the configuration imports it, without torch",
    "mpi_learn.py": "the documented import path of compat/mpi_learn",
    "search/pareto.py": "functions of vectors, below the snapshot that samplers and pruners read",
    "preflight/passed_checks.py": "keeps torch out of a check",
}
TOP_LEVEL = {
    "__init__.py": "the package",
    "api.py": "the functions that `import nnlo_lib` offers",
    "cli.py": "the entry point of `nnlo`",
    "mpi_learn.py": "the documented import path of compat/mpi_learn",
}
STANDARD_NAMES = {"__init__", "base", "factory"}
MIRRORS = {
    "commands": "`nnlo <name>`; the package of that name does the work",
    "compat": "files are named after the files of the old systems, or the block of settings they translate",
    "mpi_learn.py": "a re-export of compat/mpi_learn",
}
SAME_CONCEPT = {
    "allreduce": "the algorithm, and the collective operation of MPI that it calls",
    "attempts": "state/ records attempts, report/ shows them",
    "communicator": "the interface, and each transport's implementation",
    "gan": "the networks, and the problem",
    "rank": "entry points of `python -m`: a rank of a training, a rank of an MPI pool",
    "space": "the settings of a search space, and the space",
    "topology": "the settings of a topology, and the topology",
}


def _lines() -> dict[str, int]:
    return {short(path): path.read_text().count("\n") for path in MODULES}


def _duplicates() -> dict[str, list[str]]:
    places = defaultdict(list)
    for path in MODULES:
        mirrored = path.relative_to(PACKAGE).parts[0] in MIRRORS
        if path.stem not in STANDARD_NAMES and not mirrored:
            places[path.stem].append(short(path))
    return repeated(places)


def test_modules_have_at_most_400_lines():
    assert {name: lines for name, lines in _lines().items() if lines > MAX_LINES} == {}


def test_modules_below_80_lines_have_a_reason():
    small = {
        name for name, lines in _lines().items() if lines < MIN_LINES and not name.endswith("__init__.py")
    }
    assert small == set(SMALL), "merge the module with its only reader, or give a reason"


def test_no_loose_modules():
    assert {path.name for path in PACKAGE.glob("*.py")} == set(TOP_LEVEL)


def test_module_names_are_unique_unless_one_concept_has_several_sides():
    assert set(_duplicates()) == set(SAME_CONCEPT), _duplicates()


def test_names_of_public_classes_are_unique():
    places = defaultdict(list)
    for path in MODULES:
        for node in classes(path):
            places[node.name].append(short(path))
    assert repeated(places) == {}


def test_folders_are_few_and_flat():
    sizes = Counter(path.parent for path in MODULES if path.stem != "__init__")
    assert {short(folder): files for folder, files in sizes.items() if files > MAX_FILES_IN_FOLDER} == {}
    assert [short(path) for path in MODULES if len(path.relative_to(PACKAGE).parts) > MAX_DEPTH] == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=short)
def test_every_package_has_a_docstring(folder):
    assert ast.get_docstring(tree(folder / "__init__.py"))
