"""Check and measure trainings on a GPU: `python benchmarks/gpu.py [--output FOLDER] [--quick]`.

It runs tests/train/test_gpu_training.py (each way of computing, each algorithm, NCCL, resumes and both places of the images
to the same bits), then measures images/s beside plain PyTorch on synthetic images: with PyTorch's defaults; tuned
(peers.py): images on the GPU from the start, channels last, a fused optimizer; with torch.compile; and with kernels whose
results have the same bits. Start-up, the first epoch (kernels are chosen or compiled in it) and validation are excluded.
FOLDER gets gpu.json and gpu.md. `--device cpu`, part of `--quick`, shows that the command itself works: its figures say nothing about GPUs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from throughput import peer

from nnlo_lib.config.data import DataConfig
from nnlo_lib.data.store.convert import Conversion, convert

ROOT = Path(__file__).parents[1]
TESTS = "tests/train/test_gpu_training.py"


class Case(NamedTuple):
    """What is trained: a model on `samples` images of a shape, `steps` batches an epoch."""

    model: str
    shape: tuple[int, int, int]
    samples: int
    batch: int
    steps: int


CASES = (
    Case("simplecnn", (1, 28, 28), 30_000, 64, 400),
    Case("resnet20", (3, 32, 32), 30_000, 128, 150),
    Case("vgg11", (3, 32, 32), 30_000, 128, 150),
    Case("resnet50", (3, 224, 224), 3_000, 64, 30),
)
SMALL = (Case("simplecnn", (1, 28, 28), 300, 16, 4),)
TUNED = ("--tuned",)
PEERS = {
    "PyTorch, defaults": (),
    "PyTorch, tuned": TUNED,
    "PyTorch, tuned, deterministic": (*TUNED, "--deterministic"),
    "PyTorch, tuned, compiled": (*TUNED, "--compile", "reduce-overhead"),
}
RECORDED, RESIDENT = {"train": {"compile": "cuda_graph"}}, {"data": {"placement": "device"}}
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "nnlo": {},
    "nnlo, images on the GPU": RESIDENT,
    "nnlo, recorded": RECORDED,
    "nnlo, images on the GPU, recorded": RECORDED | RESIDENT,
    "nnlo, fastest kernels": {"train": {"deterministic": False}},
}


def correctness(workers: int) -> dict[str, Any]:
    """Run the tests of trainings on GPUs; return their numbers by outcome and the first lines of failures."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-v", "-n", str(workers), "--tb=short", "--durations=5", TESTS]
    lines = []
    # Else each process would start a thread for each core, for its part of a training on CPUs.
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=one_thread, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1])
    failures = [line.strip() for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {
        **{kind: int(count) for count, kind in counts},
        "failures": failures,
        "seconds": time.perf_counter() - began,
    }


def images(folder: Path, case: Case) -> Path:
    """Convert synthetic images; return the manifest of the store."""
    (folder / "raw").mkdir()
    settings = DataConfig.model_validate(_data(case)).store_settings
    convert(Conversion(settings, folder / "raw", folder / "store"))
    return folder / "store" / "manifest.json"


def _data(case: Case) -> dict[str, Any]:
    reader = {"name": "synthetic", "shape": case.shape, "samples": case.samples, "test_samples": 100}
    return {"dataset": "synthetic", "reader": reader}


def ours(
    manifest: Path, case: Case, options: argparse.Namespace, bf16: bool, settings: dict[str, dict[str, Any]]
) -> float:
    """Train with scripts/train.py on one rank and return the samples/s after the first epoch."""
    run = {
        "data": _data(case) | settings.get("data", {}),
        "model": {"name": case.model},
        "train": {
            "epochs": options.epochs + 1, "batch_size": case.batch, "steps_per_epoch": case.steps,
            "precision": "bf16" if bf16 else "float32",
            "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}, **settings.get("train", {}),
        },
        "parallel": {"ranks": 1, "gpus_per_rank": int(options.device == "cuda")},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(json.dumps({"experiment": "gpu", "name": "run", "folds": 1, "run": run}))
        command = [
            sys.executable, ROOT / "scripts/train.py", "--config", config, "--manifest", manifest, "--folder", folder,
            "--seed", "1",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
        history = pd.read_csv(Path(folder, "history.csv"))
    passed = history.iloc[-1] - history.iloc[0]
    return float(passed["samples"] / passed["seconds"])


def speed(case: Case, bf16: bool, options: argparse.Namespace, deadline: float) -> dict[str, float | str]:
    """Return the samples/s of each configuration by name; an error's last line for one that failed."""
    found: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        manifest = images(Path(folder), case)
        common = ("--model", case.model, "--batch", str(case.batch), "--steps", str(case.steps))
        common += ("--device", options.device, *(("--bf16",) if bf16 else ()))
        for name in options.configurations or [*OURS, *PEERS]:
            needs_gpu = name.endswith(("compiled", "recorded"))
            if (needs_gpu and options.device == "cpu") or time.perf_counter() > deadline:
                continue
            try:
                if name in OURS:
                    found[name] = ours(manifest, case, options, bf16, OURS[name])
                else:
                    found[name] = peer(manifest, options.epochs, 1, *common, *PEERS[name])[
                        "samples_per_second"
                    ]
            except subprocess.CalledProcessError as error:
                text = (error.stderr or error.stdout or b"").strip()
                text = text.decode() if isinstance(text, bytes) else text
                print(text[-1500:])
                found[name] = f"failed: {text.splitlines()[-1] if text else error}"
            print(f"{case.model}{', bf16' * bf16}: {name}: {found[name]}", flush=True)
    return found


def markdown(results: dict[str, Any]) -> str:
    """Return the results as Markdown tables."""
    lines = [f"Measured on {results['device']} with PyTorch {results['torch']}.", ""]
    if "correctness" in results:
        tests = results["correctness"]
        counts = ", ".join(f"{value} {kind}" for kind, value in tests.items() if isinstance(value, int))
        lines += [
            f"`{TESTS}`: {counts} in {tests['seconds']:.0f} s.",
            *(f"* {each}" for each in tests["failures"]),
            "",
        ]
    names = [name for name in [*OURS, *PEERS] if any(name in each for each in results["speed"].values())]
    lines += [f"| images/s | {' | '.join(names)} |", f"| --- {'| ---: ' * len(names)}|"]
    for case, figures in results["speed"].items():
        cells = (figures.get(name, "") for name in names)
        lines.append(
            f"| {case} | {' | '.join(f'{each:,.0f}' if isinstance(each, float) else each for each in cells)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Check, measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="folder of gpu.json and gpu.md")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0, help="no configuration starts after them")
    parser.add_argument("--epochs", type=int, default=3, help="measured epochs")
    parser.add_argument("--only", choices=("correctness", "speed"))
    parser.add_argument("--cases", nargs="*", help="models to measure")
    parser.add_argument("--configurations", nargs="*", choices=[*OURS, *PEERS], help="columns to measure")
    parser.add_argument("--workers", type=int, default=8, help="processes of the tests")
    parser.add_argument("--quick", action="store_true", help="a few steps on the CPU, without the tests")
    options = parser.parse_args()
    deadline = time.perf_counter() + 60 * options.minutes
    if options.quick:
        options.device, options.epochs, options.only = "cpu", 1, "speed"
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this machine shows no GPU to PyTorch; --device cpu runs the command on a few images")
    device = torch.cuda.get_device_name() if options.device == "cuda" else "a CPU"
    results: dict[str, Any] = {"device": device, "torch": torch.__version__, "speed": {}}
    if options.only != "speed":
        results["correctness"] = correctness(options.workers)
    for bf16 in (False, True):
        for case in CASES if options.device == "cuda" else SMALL:
            if options.only != "correctness" and case.model in (options.cases or [case.model]):
                results["speed"][case.model + ", bf16" * bf16] = speed(case, bf16, options, deadline)
    print(markdown(results))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "gpu.json").write_text(json.dumps(results, indent=1))
        (options.output / "gpu.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
