"""Plant mistakes that a programmer makes into a copy of the repository, and report which test finds each.

    python tests/planted_defects/plant.py [NAME ...]    all patches of this folder, or those with these names

A patch begins with two comments: the mistake in a sentence, and `tests:` with the paths that are run in this order.
A test counts if it fails with the mistake and passes without it. The exit status is 1 if a patch does not apply, if its
tests cannot be run, or if more than MAX_MISSED mistakes are not found.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
MAX_MISSED = 3
TESTS_TIMEOUT_S = 3600  # a busy machine; pytest ends a single test much earlier
NOT_FOUND = "NOT FOUND"


class CannotRunError(Exception):
    """The patch does not apply, or its tests cannot be run or fail without it."""


@dataclass(frozen=True)
class Tree:
    """A copy of the repository's working tree, whose packages are imported instead of the installed ones."""

    folder: Path

    @classmethod
    def copy(cls, parent: Path) -> "Tree":
        """Copy the files that git does not ignore; real data are beside the copy, as beside the repository."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY, capture_output=True, text=True, check=True,
        )  # fmt: skip
        tree = cls(parent / REPOSITORY.name)
        for name in filter(None, listed.stdout.split("\0")):
            # A file that was deleted and not committed is still listed.
            if (REPOSITORY / name).is_file():
                (tree.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, tree.folder / name)
        (parent / "shared").symlink_to(REPOSITORY.parent / "shared")
        # The editable installation has a path to the repository's packages, too.
        imported = tree.run(sys.executable, "-c", "import nnlo_lib; print(nnlo_lib.__file__)", folder=parent)
        if not imported.stdout.startswith(str(tree.folder)):
            raise SystemExit(f"the tests would import {imported.stdout or imported.stderr}")
        return tree

    def run(self, *command: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command in the copy, or in another folder."""
        variables = {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=folder or self.folder, env=os.environ | variables, text=True, timeout=TESTS_TIMEOUT_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip

    @contextmanager
    def planted(self, patch: Path) -> Iterator[None]:
        """Apply a patch, and restore the files afterwards."""
        lines = [line for line in patch.read_text().splitlines() if line.startswith("+++ b/")]
        files = [self.folder / line.removeprefix("+++ b/") for line in lines]
        before = [(file, file.read_bytes(), file.stat()) for file in files if file.exists()]
        if (applied := self.run("git", "apply", str(patch))).returncode:
            raise CannotRunError(f"the patch does not apply: {applied.stdout.strip()}")
        try:
            yield
        finally:
            for file, content, status in before:
                file.write_bytes(content)
                # Python compiles a file again only if its size or time differs.
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    def first_failure(self, *tests: str) -> str | None:
        """Return the first test that fails, or None. Raises CannotRunError."""
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not exhaustive"]
        try:
            done = self.run(sys.executable, "-m", "pytest", *options, *tests)
        except subprocess.TimeoutExpired:
            return None
        lines = done.stdout.splitlines()
        failed = [
            line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/")) and "::" in line
        ]
        if done.returncode and not failed:
            raise CannotRunError(f"its tests do not run: {' '.join(lines[-3:])}")
        return failed[0].partition(" ")[2].partition(" - ")[0] if failed else None


def finder(tree: Tree, patch: Path) -> str:
    """Return the test that finds the mistake of a patch, or NOT_FOUND. Raises CannotRunError."""
    tests = patch.read_text().splitlines()[1].removeprefix("# tests: ").split()
    with tree.planted(patch):
        test = tree.first_failure(*tests)
    if test is not None and tree.first_failure(test):
        raise CannotRunError(f"{test} fails without the mistake, too")
    return test or NOT_FOUND


def main(names: list[str]) -> int:
    """Print a line for each defect; return the exit status."""
    patches = [HERE / f"{name}.patch" for name in names] or sorted(HERE.glob("*.patch"))
    results = []
    with tempfile.TemporaryDirectory(prefix="planted-") as parent:
        tree = Tree.copy(Path(parent))
        for patch in patches:
            started = time.monotonic()
            try:
                results.append(finder(tree, patch))
            except CannotRunError as error:
                results.append(f"ERROR: {error}")
            print(f"{patch.stem:<36} {time.monotonic() - started:6.0f} s  {results[-1]}", flush=True)
    missed, errors = results.count(NOT_FOUND), sum(each.startswith("ERROR: ") for each in results)
    print(f"{len(results) - missed - errors} of {len(results)} found, {missed} not found, {errors} errors")
    return int(missed > MAX_MISSED or errors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
