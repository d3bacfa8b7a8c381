"""`make test-real`: run the tests marked `real`, and each test that fails once more, alone.

A test that passes alone is reported as FLAKY in the last line and does not fail the lane, because these tests share the
machine with a Slurm cluster and MPI ranks. Outputs of both runs are kept in `.pytest_cache/real`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".pytest_cache"
FAILED = CACHE / "v/cache/lastfailed"
LOGS = CACHE / "real"
WORKERS = 3  # one of them mostly waits for Slurm
REPEATED = 4  # more failures have a common cause, which a repetition would hide


def run(name: str, *arguments: str) -> int:
    """Run pytest, print its output and write it to a log; return the exit status."""
    command = [sys.executable, "-m", "pytest", "-m", "real", *arguments]
    with (
        (LOGS / f"{name}.log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        assert process.stdout
        # Not line by line: pytest prints a character for each test.
        while part := os.read(process.stdout.fileno(), 1 << 16):
            for stream in (sys.stdout.buffer, log):
                stream.write(part)
                stream.flush()
    return process.returncode


def main() -> int:
    """Return the exit status of the lane."""
    LOGS.mkdir(parents=True, exist_ok=True)
    FAILED.unlink(missing_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    # Only these files are collected: collecting all takes as long as several tests. Backwards, so that the long tests
    # of `train` do not begin last.
    tests = sorted((ROOT / "tests").rglob("test_*.py"), reverse=True)
    files = [str(file) for file in tests if "mark.real" in file.read_text()]
    status = run("first", "-n", str(WORKERS), "--dist", "loadfile", *files)
    failed = sorted(json.loads(FAILED.read_text())) if status == 1 and FAILED.exists() else []
    if status == 0 or not failed or len(failed) > REPEATED:
        return status
    for number, test in enumerate(failed):
        print(f"\nonce more, alone: {test}", flush=True)
        if run(f"again-{number}", test):
            return 1
    print(f"FLAKY: {', '.join(failed)} (both outputs in {LOGS.relative_to(ROOT)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
