"""`nnlo verify` accepts real trainings, and names each modified file."""

import json
import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_here import CASES

from nnlo_lib.config import Run
from nnlo_lib.config.base import RECORDED_RUN_CONTEXT
from nnlo_lib.core.atomic_file import file_sha256, with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import load_partition, save_partition
from nnlo_lib.reliability.file_checks import verify_runs
from nnlo_lib.search.study.trial import FoldTask, Result

ATTEMPT = {
    "attempt": 1, "started": "2026-01-02T03:04:00+00:00", "ended": "2026-01-02T03:05:00+00:00", "seconds": 60.0,
    "host": "node0", "job": None, "reason": "preempted", "error": None, "from": 0, "reached": 9, "saved": 6, "ranks": 3,
}  # fmt: skip
SECOND = ATTEMPT | {
    "attempt": 2, "started": "2026-01-02T03:10:00+00:00", "ended": "2026-01-02T03:11:00+00:00", "from": 6,
    "reached": 12, "saved": 12, "reason": "finished",
}  # fmt: skip


def change(folder, **values):
    """Change keys of summary.json, with a matching checksum."""
    path = folder / "summary.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | values)))


def recorded_config(folder):
    return json.loads((folder / "summary.json").read_text())["config"]


def change_config(folder, config, **values):
    """Replace the recorded configuration, with a matching hash."""
    run = Run.model_validate(config, context=RECORDED_RUN_CONTEXT)
    change(folder, config=config, config_hash=run.hash, **values)


def attempted(job, *attempts):
    (job / "state/attempts.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in attempts))


@pytest.mark.parametrize("case", CASES)
def test_a_sound_training_has_nothing_against_it(workspace, verified, case):
    folder = workspace / f"results/t/{case}/seed-0"
    status, found = verified(folder, shards=True)
    assert (status, found["FAILED"]) == (0, [])
    for said in (
        "outputs match their checksums", "checkpoints in state/checkpoints are intact", "evaluation.json matches its checksums",
        "exactly once, over all attempts", "is the manifest of the training data", "every shard of the data",
    ):  # fmt: skip
        assert any(said in line for line in found["ok"]), said
    paused = json.loads((folder / "summary.json").read_text())["paused_within_epoch"]
    assert paused == (case == "downpour"), "the only asynchronous one that was stopped within an epoch"
    bits = "reproducible bit for bit from summary.json, with code 0.1.0 (0123456789ab)"
    assert any(bits in line for line in found["ok"]) == (not paused)
    assert any("stopped and resumed within an epoch" in line for line in found["note"]) == paused


def test_a_folder_above_stands_for_all_trainings_in_it_and_one_bad_one_is_enough(job, capsys):
    assert verify_runs(["results/t"], False) == 0
    out = capsys.readouterr().out.splitlines()
    assert {f"results/t/{case}/seed-0" for case in CASES} <= set(out)
    flip(newest(job) / "rank-1.safetensors")
    assert verify_runs(["results/t"], False) == 1
    assert capsys.readouterr().out.count("FAILED") == 1


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path, number, **values):
    """Change values in a line of a .jsonl file."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    path.write_text("\n".join(lines) + "\n")


def ledger_lines(*numbers):
    """Return a function that keeps only the lines of the ledger with these indices, in this order."""

    def keep(job):
        lines = (job / "state/ledger.jsonl").read_text().splitlines()
        (job / "state/ledger.jsonl").write_text("".join(f"{lines[number]}\n" for number in numbers))

    return keep


def swap_two_samples(job):
    """Swap a training sample with a validation sample, with a matching checksum."""
    validation, (train,) = load_partition(job / "partition.npz")
    validation[0], train[0] = train[0], validation[0]
    save_partition(job / "partition.npz", validation, [train])
    outputs = json.loads((job / "summary.json").read_text())["outputs"]
    change(job, outputs=outputs | {"partition.npz": file_sha256(job / "partition.npz")})


def newest(job):
    return max((job / "state/checkpoints").iterdir())


def store(job):
    [manifest] = job.parents[3].glob("data/digits/*/manifest.json")
    return manifest.parent


TAMPERING = {
    "a flipped bit in the model": (
        lambda job: flip(job / "model.safetensors"),
        ["output model.safetensors is damaged or was modified", "evaluation.json belongs to another model.safetensors; evaluate the model again"],
    ),
    "no partition": (
        lambda job: (job / "partition.npz").unlink(),
        ["output partition.npz is missing", "ledger: the used samples cannot be verified: "],
    ),
    "another partition": (
        swap_two_samples,
        [f"ledger: epoch {epoch} did not use the samples that partition.npz and the configuration require" for epoch in (1, 2)],
    ),
    "a flipped bit in a checkpoint": (
        lambda job: flip(newest(job) / "rank-1.safetensors"),
        [r"checkpoint 0000000.* rank-1\.safetensors is damaged.*; a resumed training will skip it$"],
    ),
    "a checkpoint without a rank": (
        lambda job: (newest(job) / "rank-1.safetensors").unlink(),
        [r"checkpoint 0000000.* rank-1\.safetensors is missing; a resumed training will skip it$"],
    ),
    "half a manifest of a checkpoint": (
        lambda job: (newest(job) / "manifest.json").write_text('{"version": 2'),
        ["checkpoint 0000000"],
    ),
    "a sample missed": (
        lambda job: edit(job / "state/ledger.jsonl", 1, missed=1, repeated=1, examples=[4, 17]),
        ["ledger: epoch 2 used 1 sample too few times and 1 sample too many times, such as 4, 17"],
    ),
    "other samples used": (
        lambda job: edit(job / "state/ledger.jsonl", 0, sha256="0"),
        ["ledger: epoch 1 did not use the samples that partition.npz and the configuration require"],
    ),
    "an evaluation of other values": (
        lambda job: (job / "evaluation.json").write_text('{"samples": 355, "confusion": [[1], 2]}'),
        ["evaluation.json was modified: its content differs", "evaluation.json belongs to another model.safetensors"],
    ),
    "an epoch twice in the ledger": (
        ledger_lines(0, 0, 1),
        ["ledger: the used samples cannot be verified: .*/state/ledger.jsonl: line 2 is of epoch 1; 2 epochs were trained"],
    ),
    "epochs in another order": (
        ledger_lines(1, 0),
        ["ledger: the used samples cannot be verified: .*/state/ledger.jsonl: line 1 is of epoch 2; 2 epochs"],
    ),
    "an epoch less in the ledger": (
        ledger_lines(0),
        ["ledger: the used samples cannot be verified: .*/state/ledger.jsonl: line 2 is missing; 2 epochs"],
    ),
    "a torn ledger": (
        lambda job: (job / "state/ledger.jsonl").write_text('{"epoch": 1, "sam'),
        ["ledger: the used samples cannot be verified: .*/state/ledger.jsonl is damaged"],
    ),
    "data converted anew": (
        lambda job: (store(job) / "manifest.json").write_text("{}"),
        [".*/manifest.json is not the manifest of the training data"],
    ),
    "a flipped bit in the data": (
        lambda job: flip(store(job) / "train-00000-of-00001.h5"),
        [r"shard .*/train-00000-of-00001.h5 is unreadable \(the checksum differs from the manifest\)"],
    ),
    "another configuration": (
        lambda job: change(job, config=recorded_config(job) | {"metrics": []}),
        ["the configuration in summary.json was modified"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tamper", "said"), TAMPERING.values(), ids=TAMPERING)
def test_a_modified_file_is_named_and_nothing_else(job, verified, tamper, said):
    tamper(job)
    status, found = verified(job, shards=True)
    assert status == 1
    assert len(found["FAILED"]) == len(said)
    for line, pattern in zip(found["FAILED"], said, strict=True):
        assert re.match(pattern, line)


def test_a_flipped_bit_is_found_in_each_published_file(job, verified):
    published = [*json.loads((job / "summary.json").read_text())["outputs"], "evaluation.json"]
    assert len(published) >= 5
    for name in published:
        before = (job / name).read_bytes()
        flip(job / name)
        status, found = verified(job)
        assert status == 1
        assert any(name in line for line in found["FAILED"]), name
        (job / name).write_bytes(before)


def measured_clock(job):
    """Record attempts of 120 s with measured, not virtual seconds."""
    attempted(job, ATTEMPT, SECOND)
    change_config(job, Run().model_dump(mode="json"), training_seconds=90.0, seconds={"total": 119.0})


def users_reader(job):
    (job.parents[3] / "mine.py").touch()
    config = recorded_config(job)
    config["data"] |= {"dataset": "mine", "source": "x", "reader": {"name": "mine.py:Reader"}}
    change_config(job, config)


PACKAGES = {"numpy": "0.1", "python": platform.python_version(), "no-such": "1"}
NOTES = {
    "data elsewhere": (lambda job: shutil.rmtree(job.parents[3] / "data"), "was not found; the data were not compared"),
    "attempts": (
        lambda job: attempted(job, ATTEMPT, SECOND), "attempts: 2 (1 preempted, 1 finished); repeated steps: 3",
    ),
    "clock": (measured_clock, "effective training time ratio 75.0 % of 120.0 s"),
    "packages": (
        lambda job: change(job, packages=PACKAGES),
        f": numpy is {np.__version__} (summary.json: 0.1); no-such is not installed (summary.json: 1)",
    ),
    "reader": (users_reader, "it needs mine.py, the reader of the data"),
}  # fmt: skip


@pytest.mark.parametrize(("happened", "said"), NOTES.values(), ids=NOTES)
def test_what_is_no_fault_is_a_note(job, verified, happened, said):
    happened(job)
    _, found = verified(job)
    assert any(said in line for line in found["note"]), found
    assert found["FAILED"] == []


def test_with_other_ranks_within_an_epoch_the_ledger_is_not_compared_with_the_partition(copy, verified):
    job = copy / "results/t/short-parts/seed-0"
    change(job, legs=[{"step": 0, "ranks": ranks, "code": "0.1.0 (0123456789ab)"} for ranks in (5, 3)])
    edit(job / "state/ledger.jsonl", 0, sha256="0")
    status, found = verified(job)
    assert status == 0
    assert any("not compared with partition.npz" in line for line in found["note"])


def test_an_epoch_that_was_cut_short_is_reported(job, verified):
    edit(job / "state/ledger.jsonl", 1, cut=True, samples=77)
    found = verified(job)[1]["ok"]
    assert any("ledger: the epoch used each of its " in line for line in found)
    assert "ledger: epoch 2 ended before its last step: it used 77 samples, each once" in found


LEG = {"step": 0, "ranks": 2, "code": "0.1.0 (0123456789ab)"}
SIMULATED = {"ranks": 3, "transport": "simulated"}
REASONS = {
    "other ranks": ({"legs": [LEG, LEG | {"step": 9, "ranks": 3}]}, {}, "number of ranks changed (2 from step 0, 3 from step 9)"),
    "other code": ({"legs": [LEG, LEG | {"step": 9, "code": "0.2.0"}]}, {}, "its code changed (0.1.0 (0123456789ab) from step 0, 0.2.0 "),
    "with changes": ({"code_version": "0.1.0 (0123456789ab+)"}, {}, "its code had uncommitted changes"),
    "no commit": ({"code_version": "0.1.0"}, {}, "contains no commit"),
    "asynchronous": ({}, {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3}}, "do not wait for each other"),
    "paused": (
        {"paused_within_epoch": True}, {"algorithm": {"name": "downpour"}, "parallel": SIMULATED},
        "stopped and resumed within an epoch",
    ),
    "fastest": ({}, {"algorithm": {"name": "allreduce", "reduction": "fastest"}}, "lets MPI choose the order"),
    "measured": ({}, {"parallel": SIMULATED | {"simulation": {"sample_seconds": "measured"}}}, "the speed of the machine"),
    "GPU": ({}, {"parallel": {"gpus_per_rank": 1}}, "trained on GPUs"),
    "own network": ({}, {"model": {"name": "mine.py:net"}}, "it needs mine.py, of which no copy is kept"),
}  # fmt: skip


@pytest.mark.parametrize(("summary", "settings", "said"), REASONS.values(), ids=REASONS)
def test_each_reason_why_a_training_cannot_be_repeated_is_reported(
    copy, job, verified, summary, settings, said
):
    (copy / "mine.py").touch()
    if settings:
        change_config(job, Run.model_validate(settings).model_dump(mode="json"))
    change(job, **summary)
    _, found = verified(job)
    [told] = [line for line in found["note"] if line.startswith("not reproducible bit for bit: ")]
    assert said in told
    assert not any("reproducible" in line for line in found["ok"])


GONE = {
    "model": ({"model": {"name": "no.py:net"}}, "it needs no.py, of which no copy is kept with the run and which was not found"),
    "weights": ({"model": {"weights": "no.pt"}}, "it needs no.pt, .* was not found"),
    "loss": ({"loss": "no.py:loss", "metrics": ["no.py:metric"]}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("config", "said"), GONE.values(), ids=GONE)
def test_files_of_the_user_may_be_gone(job, verified, config, said):
    change_config(job, recorded_config(job) | config, input_files={"no.pt": "0"})
    status, found = verified(job)
    assert (status, found["FAILED"]) == (0, [])
    assert any(re.search(said, line) for line in [*found["note"], *found["ok"]])


def test_results_of_other_people_run_no_code(copy, job, verified):
    """A summary that names files of the user, which exist, is checked without running the files."""
    (copy / "evil.py").write_text("open('mark', 'w')")
    own = {"name": "evil.py:Evil", "args": {}}
    config = recorded_config(job) | dict.fromkeys(("algorithm", "problem", "compression"), own)
    config |= {"loss": "evil.py:loss", "metrics": ["evil.py:m"], "model": {"name": "evil.py:net"}}
    config["parallel"] = {"ranks": 2}
    config["data"] |= {"dataset": "mine", "source": "x", "reader": own}
    change_config(job, config)
    assert any("evil.py:Evil may not wait for each other" in line for line in verified(job)[1]["note"])
    assert not (copy / "mark").exists()


def test_an_unfinished_training_is_reported_with_its_error_and_the_command_that_finishes_it(copy, job):
    (job / "summary.json").unlink()
    attempted(job, ATTEMPT | {"reason": "diverged", "error": "the loss is nan"})
    done = nnlo("verify", str(copy / "results/t"), folder=copy)
    assert done.returncode == 2
    assert done.stderr == (
        f"nnlo: error: {job}: the training is not finished: summary.json is missing (diverged: the loss is nan); "
        "to finish it: nnlo run FILE --run allreduce --seed 0 (FILE: the experiment file)\n"
    )
    assert done.stdout.count("exactly once") == len(CASES) - 1
    (copy / "other/one/seed-3/fold-2/state").mkdir(parents=True)
    with pytest.raises(UserError, match=r"nnlo run FILE --run one --seed 3 --fold 2 \(FILE"):
        verify_runs([str(copy / "other")], False)


@pytest.mark.parametrize("summary", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_damaged_summary_is_reported(job, summary):
    (job / "summary.json").write_bytes(summary)
    with pytest.raises(UserError, match=r"summary\.json is cut short or damaged"):
        verify_runs([str(job)], False)


def test_a_configuration_that_is_unknown_here_is_reported(job):
    change(job, config={"algorithm": {"name": "sync"}})
    advice = "run the command in the folder in which the task was trained, with the nnlo version that wrote the file: 0.1.0 (01234"
    with pytest.raises(UserError, match=f"summary.json: config: algorithm: .*; {re.escape(advice)}"):
        verify_runs([str(job)], False)


def test_a_trial_that_a_search_paused_is_a_note(tmp_path, verified):
    fold = tmp_path / "search/trials/0003/fold-1"
    for folder in (fold, tmp_path / "search"):
        (folder / "state").mkdir(parents=True)
    for last, said in (
        (Result(FoldTask(3, 1, 10), "finished"), "the search paused it after epoch 10"),
        (Result(FoldTask(3, 1, 10), "failed", error="boom"), "its result in the search is failed: boom"),
    ):
        for result in (Result(FoldTask(3, 1, 9), "finished"), last):
            result.write(tmp_path / "search")
        status, found = verified(tmp_path / "search")
        assert (status, found["note"]) == (0, [f"not finished: {said}"])
    for path in fold.glob("epochs-*.json"):
        path.unlink()
    with pytest.raises(UserError, match="to finish it: nnlo search FILE"):
        verify_runs([str(tmp_path / "search")], False)


def test_folders_without_trainings_are_reported(tmp_path):
    assert "folder not found" in refused(nnlo("verify", str(tmp_path / "no")))
    with pytest.raises(UserError, match="no training found"):
        verify_runs([str(tmp_path)], False)


def test_another_evaluation_is_left_to_its_command(copy, job):
    said = refused(nnlo("verify", str(job), "--evaluate", folder=copy))
    assert "to evaluate a model again: nnlo evaluate FOLDER" in said


@pytest.mark.processes
def test_the_command_does_not_need_torch(workspace):
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); from nnlo_lib.cli import main; main()"
    folder = str(workspace / "results/t/dsgd/seed-0")
    done = subprocess.run(
        [sys.executable, "-c", code, "verify", folder], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok" in done.stdout
    assert done.stdout.endswith("False\n")
