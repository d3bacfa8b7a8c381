"""Packages of PYTHONPATH, of the user's site or of the working directory that Python imports in place of the environment's.

They are found without an import, which would end with a traceback that names neither the package nor its folder.
"""

import os
import site
import sys
from importlib.machinery import PathFinder

# What nnlo imports, and what these packages import at once.
PACKAGES = {
    "PIL", "annotated_types", "dateutil", "google_crc32c", "greenlet", "h5py", "jinja2", "joblib", "mpi4py", "networkx", "numpy",
    "packaging", "pandas", "psutil", "pydantic", "pydantic_core", "requests", "rich", "safetensors", "scipy", "shtab",
    "sklearn", "skopt", "snakemake", "snakemake_executor_plugin_lsf", "snakemake_executor_plugin_slurm", "submitit",
    "sympy", "threadpoolctl", "torch", "typing_extensions", "yaml",
}  # fmt: skip


def refuse_shadowed_packages() -> None:
    """Print a sentence and exit with status 2 if packages of the environment are replaced by others."""
    if problem := shadowed_packages():
        print(f"nnlo: error: {problem}", file=sys.stderr)
        sys.exit(2)


def shadowed_packages(started_in: str = "") -> str:
    """Return which packages come from which folder and what to do, or an empty string.

    A package that the environment lacks may come from another folder, as a loaded module of the site offers it.

    Args:
        started_in: folder in which `python -m` will be started, which Python then searches first.
    """
    own = [path for path in site.getsitepackages([sys.prefix]) if path in sys.path]
    before = sys.path[: min(map(sys.path.index, own))] if own else []
    for folder in dict.fromkeys(filter(None, [started_in, *map(os.path.abspath, before)])):
        if not os.path.isdir(folder) or folder.startswith(os.path.dirname(os.__file__)):
            continue
        listed = os.listdir(folder)
        others = [
            name
            for name in sorted(PACKAGES & {name.partition(".")[0] for name in listed})
            if _replaces(name, folder, own)
        ]
        # `pip install --user` and `--target` make another folder the environment.
        if others and not any(name.startswith("nnlo-") and name.endswith(".dist-info") for name in listed):
            verb = "comes" if len(others) == 1 else "come"
            return f"{', '.join(others)} {verb} from {folder} {_remedy(folder, others[0])}"
    return ""


def _replaces(name: str, folder: str, own: list[str]) -> bool:
    """Return True if both the folder and the environment have a package; a folder without `__init__.py` replaces none."""
    found, wanted = PathFinder.find_spec(name, [folder]), PathFinder.find_spec(name, own)
    if not (found and found.origin and wanted and wanted.origin):
        return False
    return not os.path.samefile(found.origin, wanted.origin)


def _remedy(folder: str, name: str) -> str:
    replaced = f"in place of the environment {sys.prefix}"
    if folder in map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        return f"(PYTHONPATH) {replaced}; unset PYTHONPATH"
    if site.ENABLE_USER_SITE and folder == os.path.abspath(site.getusersitepackages()):
        return f"(user site) {replaced}; export PYTHONNOUSERSITE=1"
    return f"{replaced}; rename {os.path.join(folder, name)}* or work in another folder"
