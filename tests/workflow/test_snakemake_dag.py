"""The DAG on this machine is complete, repeats no finished job, and an edit reruns exactly what depends on it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from helpers.repository_copy import environment

pytestmark = pytest.mark.snakemake

NET = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
ALONE = {"parallel": {"ranks": 1}}
RUNS = {
    "pair": {"parallel": {"ranks": 2}},
    "served": {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3}},
    "own": {"model": {"name": "net.py:net"}} | ALONE,
    "simulated": {"parallel": {"ranks": 4, "transport": "simulated"}},
}
EPOCHS = {"epochs": 2, "batch_size": 64}
SUMMARY = {"aggregate": 1, "report": 1}
ALL = {"train": 4} | SUMMARY
ONE = {"train": 1} | SUMMARY
EDITS = {
    "resources": ({"resources": {"runtime": 7}}, {"report": 1}),
    "metrics": ({"metrics": ["top2_accuracy"]}, ALL),
    "one run": ({"runs": RUNS | {"own": {"train": {"batch_size": 16}} | RUNS["own"]}}, ONE),
}
MORE_EDITS = {
    "seed added": ({"seeds": [0, 1]}, ALL),
    "checkpoint": ({"checkpoint": {"every": "1 epoch"}}, {"report": 1}),
    "observe": ({"observe": {"trace": True}}, {"report": 1}),
    "placement": ({"data": {"stage_to": "/tmp"}}, {"report": 1}),
    "resources and metrics": ({"resources": {"runtime": 7}, "metrics": ["top2_accuracy"]}, ALL),
    "more epochs": ({"train": EPOCHS | {"epochs": 3}}, ALL),
    "run added": ({"runs": RUNS | {"more": {"train": {"batch_size": 8}} | ALONE}}, ONE),
    "run removed": ({"runs": {"pair": RUNS["pair"]}}, SUMMARY),
    "run renamed": ({"runs": {"pair": RUNS["pair"], "mine": RUNS["own"]}}, ONE),
    "folds": ({"folds": 2}, {"train": 8} | SUMMARY),
    "name": ({"name": "other"}, ALL),
}


def jobs(output):
    """Return the number of jobs of each rule that a dry run lists."""
    found = dict(re.findall(r"^(\w+) +(\d+)$", output.partition("Job stats:")[2].partition("\n\n")[0], re.M))
    return {rule: int(count) for rule, count in found.items() if rule not in ("all", "total")}


@pytest.fixture(scope="module")
def finished(clone):
    """Return the clone with the finished experiment `tiny`."""
    (clone.folder / "net.py").write_text(NET)
    clone.run(runs=RUNS)
    return clone


@pytest.mark.real
def test_every_stage_runs_once_and_then_nothing_is_left_to_do(finished):
    written = {"history.csv", "summary.json", "model.safetensors", "log.txt", "trace.json", "evaluation.json"}
    for run in RUNS:
        assert written <= {path.name for path in (finished.results() / run / "seed-0").iterdir()}
        assert [row["epoch"] for row in finished.table(f"tiny/{run}/seed-0/history.csv")] == ["1", "2"]
        assert finished.evaluation(f"tiny/{run}/seed-0")["samples"] == 355
    assert [row["run"] for row in finished.table("tiny/summary.csv")] == list(RUNS)
    assert "<html" in (finished.results() / "report.html").read_text()
    assert "Nothing to be done" in finished.run(runs=RUNS)


@pytest.mark.real
def test_edits_rerun_exactly_what_depends_on_them(finished):
    found = {edit: jobs(finished.run("--dry-run", **{"runs": RUNS} | EDITS[edit][0])) for edit in EDITS}
    assert found == {edit: expected for edit, (_, expected) in EDITS.items()}
    (finished.folder / "net.py").write_text(NET.replace("Flatten()", "Flatten(1)"))
    plan = finished.run("--dry-run", runs=RUNS)
    (finished.folder / "net.py").write_text(NET)
    assert jobs(plan) == ONE
    assert "train own seed-0" in plan


def contents(folder):
    """Return the content of each file of the results, without the folder of Snakemake's own state."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".workflow" not in path.parts
    }


@pytest.mark.real
def test_contents_decide_and_no_flag_or_clock(finished):
    """Before, a deleted training was "nothing to be done", and --touch after an edit left no training at all."""
    results, ahead = finished.results(), time.time() + 7200
    one = results / "own/seed-0"
    before = contents(results)
    for file in ("net.py", "tiny.yaml"):
        os.utime(finished.folder / file, (ahead, ahead))
    assert "Nothing to be done" in finished.run(runs=RUNS)
    # An edit, and --touch: nothing moves, and the plain command still trains.
    edit = {"runs": RUNS, "train": EPOCHS | {"batch_size": 32}}
    assert "--touch changes only times" in finished.run("--touch", **edit)
    assert contents(results) == before
    assert jobs(finished.run("--dry-run")) == ALL
    finished.experiment(runs=RUNS)
    # What the user forces, by rule or by file, is trained; a dry run moves nothing.
    assert jobs(finished.run("--dry-run", "--forcerun", "train")) == ALL
    assert contents(results) == before
    finished.run("--forcerun", "results/tiny/own/seed-0/evaluation.json")
    assert (one.parent / "former/1-seed-0.repeated/model.safetensors").exists()
    assert (one / "model.safetensors").read_bytes() == before[one / "model.safetensors"]
    # A deleted training, in the folder and in a copy.
    shutil.rmtree(one)
    assert (
        jobs(finished.run("--dry-run")) == jobs(finished.run("--dry-run", "--rerun-triggers", "mtime")) == ONE
    )
    os.utime(finished.folder / "net.py", (ahead, ahead))
    assert "older modification time" not in finished.run()
    assert (one / "model.safetensors").read_bytes() == before[one / "model.safetensors"]
    assert "Nothing to be done" in finished.run()


@pytest.mark.real
def test_a_module_keeps_the_handlers_of_the_user_and_names_what_failed(finished):
    """Before, the user's handlers were replaced, and with renamed rules no failure was listed."""
    handlers = "".join(f'{name}:\n    print("MINE {name}")\n' for name in ("onstart", "onsuccess", "onerror"))
    module = (
        'module nnlo:\n    snakefile: "workflow/Snakefile"\n    config: config\n'
        "use rule * from nnlo as nnlo_*\n"
        'rule mine:\n    input: "results/module/report.html"\n    output: "mine.txt"\n    shell: "wc -c {input} > {output}"\n'
    )
    broken = NET.replace("return", 'import os; 1 / ("NNLO_SESSION" not in os.environ); return')
    (finished.folder / "broken.py").write_text(broken)
    runs = {"good": RUNS["own"], "bad": RUNS["own"] | {"model": {"name": "broken.py:net"}}}
    for number, text in enumerate((handlers + module, module + handlers)):
        (finished.folder / "own.smk").write_text(text)
        said = finished.run("mine.txt", "--snakefile", "own.smk", status=1, name="module", runs=runs)
        assert "MINE onstart" in said
        assert "MINE onerror" in said
        assert (
            "nnlo: error: trainings without results: 1; results/module/report.html shows the others" in said
        )
        assert ("Finished jobid" in said) == (number == 0), "the second start trains only what failed"
    (finished.folder / "broken.py").write_text(NET)
    said = finished.run("mine.txt", "--snakefile", "own.smk")
    assert "MINE onsuccess" in said
    assert (finished.folder / "mine.txt").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("edit", MORE_EDITS)
def test_more_edits_rerun_exactly_what_depends_on_them(finished, edit):
    changes, expected = MORE_EDITS[edit]
    assert jobs(finished.run("--dry-run", **{"runs": RUNS} | changes)) == expected


@pytest.mark.exhaustive
def test_results_whose_checkpoints_an_older_nnlo_wrote_are_not_deleted(finished):
    """The training would refuse its checkpoint, and Snakemake would delete the outputs of the failed job."""
    job = finished.results() / "own/seed-0"
    manifest = max((job / "state/checkpoints").glob("*/manifest.json"))
    content, model = manifest.read_text(), (job / "model.safetensors").read_bytes()
    older = json.loads(content) | {"version": 3}
    del older["checksum"]
    older["checksum"] = hashlib.sha256(json.dumps(older, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(older))
    try:
        finished.run(runs=RUNS)  # trains nothing, so that the format does not matter
        finished.experiment(runs=RUNS, train=EPOCHS | {"batch_size": 32})
        refused = finished.snakemake()
        assert refused.returncode != 0
        assert "it has format 3, but this nnlo reads only the formats" in refused.stdout
        assert (job / "model.safetensors").read_bytes() == model
    finally:
        manifest.write_text(content)


@pytest.mark.exhaustive
def test_snakemakes_own_report_archives_the_results(finished):
    finished.run("--report", "archive.html", runs=RUNS)
    assert (finished.folder / "archive.html").stat().st_size > 100_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_mistake_is_one_sentence_before_anything_runs(clone, flags):
    (clone.folder / "broken.py").write_text(
        "def build(shape, classes):\n    raise RuntimeError('no such layer')\n"
    )
    said = clone.run(*flags, status=2, name="misspelt", algorithm={"name": "downpuor"})
    assert "tiny.yaml:" in said
    assert "did you mean 'downpour'?" in said
    said = clone.run(
        *flags, status=2, name="broken", model={"name": "broken.py:build"}, runs={"pair": RUNS["pair"]}
    )
    assert said.count("model.name: broken.py:2 in build: RuntimeError: no such layer") == 1
    for text in ("name: x\ntrain:\n\tepochs: 1\n", "name: x\ntrain: {epochs:\u00a01}\n"):
        for encoding in ("utf-8", "utf-16"):  # Snakemake itself names no line, and reads no UTF-16
            path = clone.folder / "odd.yaml"
            path.write_bytes(text.encode(encoding))
            command = [sys.executable, "-m", "snakemake", *flags, "--cores", "1", "--configfile", path.name]
            found = subprocess.run(
                command, cwd=clone.folder, env=environment(), capture_output=True, text=True
            )
            assert (found.returncode, found.stderr.count("\n")) == (2, 1), found.stderr
            assert re.match(
                rf"nnlo: error: \S*odd.yaml:{text[:-1].count(chr(10)) + 1}: invalid YAML: ", found.stderr
            )
    assert not clone.results("misspelt").exists()
    assert not clone.results("broken").exists()


def start(clone, name):
    """Start Snakemake on an experiment in a file of its own."""
    clone.experiment(name=name, runs={"alone": ALONE}).rename(clone.folder / f"{name}.yaml")
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--cores", "1", "--configfile", f"{name}.yaml"],
        cwd=clone.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_two_experiments_share_a_data_set_that_neither_has_converted(checkout):
    both = [start(checkout, "one"), start(checkout, "two")]
    said = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(said)
    assert all((checkout.folder / f"results/{name}/report.html").exists() for name in ("one", "two"))
    assert "Nothing to be done" in checkout.snakemake(file="one.yaml").stdout
