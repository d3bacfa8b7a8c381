"""Check the locations and names of the modules of nnlo_lib."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from helpers.source_tree import MODULES, PACKAGE, repeated, short, tree

TOP_LEVEL = {
    "__init__.py": "the package",
    "cli.py": "the entry point of `nnlo`",
    "mpi_learn.py": "the documented import path of compat/mpi_learn",
}
STANDARD_NAMES = {"__init__", "base", "factory"}
MIRRORS = {
    "api": "api/<name>.py has the function nnlo_lib.<name>",
    "commands": "commands/<name>.py is `nnlo <name>`, the package of that name does the work",
    "compat": "files are named after the files of the old systems, or the block of settings they translate",
    "mpi_learn.py": "a re-export of compat/mpi_learn",
}
SAME_CONCEPT = {
    "allreduce": "the algorithm, and the collective operation of MPI that it calls",
    "attempts": "state/ records attempts, report/ shows them, verify/ checks them",
    "communicator": "the interface, and each transport's implementation",
    "consensus": "train/ measures it, report/ shows it",
    "dinno": "the algorithm, and the networks of its paper",
    "gan": "the networks, the problem, and the rules of their settings",
    "gan_samples": "train/ draws the picture, report/ shows it",
    "precision": "the rules of the setting, and what a replica does with it",
    "rank": "entry points of `python -m`: a rank of a training, a rank of an MPI pool",
    "space": "the settings of a search space, and the space",
    "topology": "the settings of a topology, and the topology",
    "utilisation": "executors/ measures it, report/ shows it",
}
LARGE_FOLDERS = {
    "commands": "one file per command",
    "config": "one file per block of the experiment file",
    "core": "one file per service that every layer uses",
    "data/readers": "one file per format",
    "launch": "one file per part of the launcher",
    "models/zoo": "one file per family of networks",
    "search/study": "one file per part of a study's state on disk",
    "state": "one file per file below state/ of a run",
    "train": "the trainer's parts; sub-folders hold families of parts",
}
MAX_FILES_IN_FOLDER = 12
# earlier module names that did not indicate the content of the module
OPAQUE = set(Path(__file__).with_name("opaque_names.txt").read_text().split())


def _duplicates() -> dict[str, list[str]]:
    places = defaultdict(list)
    for path in MODULES:
        mirrored = path.relative_to(PACKAGE).parts[0] in MIRRORS
        if path.stem not in STANDARD_NAMES and not mirrored:
            places[path.stem].append(short(path))
    return repeated(places)


def _folder_sizes() -> Counter[Path]:
    return Counter(path.parent for path in MODULES if path.stem != "__init__")


def test_no_loose_modules():
    assert {path.name for path in PACKAGE.glob("*.py")} <= set(TOP_LEVEL)


def test_module_names_are_unique_unless_one_concept_has_several_sides():
    assert {name: places for name, places in _duplicates().items() if name not in SAME_CONCEPT} == {}


def test_every_exception_is_still_one():
    assert set(SAME_CONCEPT) <= set(_duplicates())
    large = {short(folder) for folder, files in _folder_sizes().items() if files > MAX_FILES_IN_FOLDER}
    assert set(LARGE_FOLDERS) <= large


def test_no_opaque_module_names():
    assert [short(path) for path in MODULES if path.stem in OPAQUE] == []


def test_large_folders_have_sub_folders():
    large = {
        short(folder): files
        for folder, files in _folder_sizes().items()
        if files > MAX_FILES_IN_FOLDER and short(folder) not in LARGE_FOLDERS
    }
    assert large == {}


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=short)
def test_every_package_has_a_docstring(folder):
    assert ast.get_docstring(tree(folder / "__init__.py"))
