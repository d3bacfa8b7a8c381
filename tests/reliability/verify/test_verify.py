"""`nnlo verify` accepts real trainings, and names each modified file."""

import contextlib
import json
import platform
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.nnlo_command import nnlo, nnlo_process, refused
from helpers.training_process import StopAfter

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.base import RECORDED_RUN_CONTEXT
from nnlo_lib.core.content_checksum import with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.partition.partition_file import load_partition, save_partition
from nnlo_lib.reliability.verify.verify_runs import verify_runs
from nnlo_lib.search.study.trial import FoldTask, Result
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.prepare_dataset import prepare_dataset
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

pytestmark = pytest.mark.processes

CASES = {
    "allreduce": {},
    "dsgd": {"algorithm": {"name": "dsgd"}, "data": {"validation": 0.2, "partition": {"name": "by_class"}}},
    "downpour": {"algorithm": {"name": "downpour"}, "train": {"dealing": "dynamic"}},
    "short": {"train": {"steps_per_epoch": 3}},
    "short-parts": {"train": {"steps_per_epoch": 3}, "data": {"partition": {"name": "by_class"}}},
    "short-dynamic": {
        "algorithm": {"name": "downpour"},
        "train": {"steps_per_epoch": 3, "dealing": "dynamic"},
    },
}
ATTEMPT = {
    "attempt": 1, "started": "2026-01-02T03:04:00+00:00", "ended": "2026-01-02T03:05:00+00:00", "seconds": 60.0,
    "host": "node0", "job": None, "reason": "preempted", "error": None, "from": 0, "reached": 9, "saved": 6, "ranks": 3,
}  # fmt: skip
GO_ON = {
    "attempt": 2,
    "started": "2026-01-02T03:10:00+00:00",
    "ended": "2026-01-02T03:11:00+00:00",
    "from": 6,
}

MANIFEST, SHARD = "data/store/manifest.json", "data/store/train-00000-of-00001.h5"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Return a folder with the converted digits in which every case was trained."""
    folder = tmp_path_factory.mktemp("workspace")
    torch.set_num_threads(1)
    with contextlib.chdir(folder):
        manifest = Path(MANIFEST)
        prepare_dataset(Experiment().data, manifest.parent)
        for case, settings in CASES.items():
            train(Path(f"results/t/{case}/seed-0"), manifest, settings)
    return folder


def train(folder, manifest, settings):
    """Train in this process without a launcher, with one interruption.

    Args:
        folder: folder of the run.
        manifest: manifest of the converted data.
        settings: changes of the configuration.
    """
    run = {
        "name": "t", "algorithm": {"name": "allreduce"}, "topology": {"name": "cycle"},
        "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}}, **settings,
        "data": {"validation": 0.2, **settings.get("data", {})},
        "train": {"epochs": 2, "batch_size": 50, **settings.get("train", {})},
        "parallel": {"ranks": 3, "transport": "simulated"},
    }  # fmt: skip
    (run,) = Plan.of(Experiment.model_validate(run)).runs.values()
    task = Task("t", folder.parent.name, run, 0, None, 1, manifest, folder)
    assert not train_simulated(task, StopAfter(5))
    assert train_simulated(task, StopFlag())
    # The recorded version is a clean one, because this checkout may have uncommitted changes.
    change(folder, code_version="0.1.0 (0123456789ab)")


def change(folder, **values):
    path = folder / "summary.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | values)))


@pytest.fixture
def copy(workspace, tmp_path):
    """Copy the workspace and return the run folder of `allreduce` in the copy, for tests that modify its files."""
    shutil.copytree(workspace, tmp_path / "w")
    return tmp_path / "w/results/t/allreduce/seed-0"


@pytest.fixture
def verified(capsys):
    """Return a function that verifies a folder and returns (exit status, lines by status)."""

    def run(folder, shards=False):
        status = verify_runs([str(folder)], shards)
        lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
        return status, {
            kind: [line[1] for line in lines if line[0] == kind] for kind in ("ok", "FAILED", "note")
        }

    return run


@pytest.mark.parametrize("case", CASES)
def test_a_sound_run_has_nothing_against_it(workspace, verified, case):
    status, found = verified(workspace / f"results/t/{case}/seed-0", shards=True)
    assert (status, found["FAILED"]) == (0, [])
    for said in (
        "outputs match their checksums", "checkpoints in state/checkpoints are intact", "history: each of 2 epochs",
        "exactly once, over all attempts", "is the manifest of the training data", "every shard of the data",
    ):  # fmt: skip
        assert any(said in line for line in found["ok"]), said
    bits = "reproducible bit for bit from summary.json, with code 0.1.0 (0123456789ab)"
    summary = json.loads((workspace / f"results/t/{case}/seed-0/summary.json").read_text())
    paused = summary["paused_within_epoch"]
    assert paused == (case == "downpour"), "the only asynchronous one that was stopped within an epoch"
    assert any(bits in line for line in found["ok"]) == (not paused)
    assert any("stopped and resumed within an epoch" in line for line in found["note"]) == paused


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path, number, **values):
    """Change values in a line of a .jsonl file."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    path.write_text("\n".join(lines) + "\n")


def relined(path, *numbers):
    """Keep only the lines with these indices, in this order."""
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{lines[number]}\n" for number in numbers))


def swap_two_samples(job):
    """Swap a training sample with a validation sample, with a matching checksum."""
    validation, (train,) = load_partition(job / "partition.npz")
    validation[0], train[0] = train[0], validation[0]
    save_partition(job / "partition.npz", validation, [train])
    outputs = json.loads((job / "summary.json").read_text())["outputs"]
    change(job, outputs=outputs | {"partition.npz": file_sha256(job / "partition.npz")})


def newest(job):
    return max((job / "state/checkpoints").iterdir())


def other_learning_rate(job):
    config = json.loads((job / "summary.json").read_text())["config"]
    config["train"]["optimizer"]["lr"] = 0.5
    change(job, config=config)


TAMPERING = {
    "a flipped bit in the model": (
        lambda job: flip(job / "model.safetensors"),
        ["output model.safetensors is damaged or was modified"],
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
        ["checkpoint 0000000"],
    ),
    "half a manifest of a checkpoint": (
        lambda job: (newest(job) / "manifest.json").write_text('{"version": 2'),
        ["checkpoint 0000000"],
    ),
    "an epoch twice in the history": (
        lambda job: relined(job / "state/history.jsonl", 0, 0, 1),
        ["history: {job}/state/history.jsonl contains epoch 1 2 times"],
    ),
    "an epoch less in the history": (
        lambda job: relined(job / "state/history.jsonl", 0),
        ["history: {job}/state/history.jsonl has no epoch 2"],
    ),
    "epochs in another order": (
        lambda job: relined(job / "state/history.jsonl", 1, 0),
        ["history: {job}/state/history.jsonl has its epochs out of order"],
    ),
    "another loss in the history": (
        lambda job: edit(job / "state/history.jsonl", 1, train_loss=0.0),
        [
            "summary.json: final.train_loss is ",
            "history: history.csv does not agree with state/history.jsonl",
        ],
    ),
    "no history": (
        lambda job: (job / "state/history.jsonl").unlink(),
        ["history: {job}/state/history.jsonl is missing"],
    ),
    "a sample missed": (
        lambda job: edit(job / "state/ledger.jsonl", 1, missed=1, repeated=1, examples=[4, 17]),
        ["ledger: epoch 2 used 1 samples too few times and 1 samples too many times, such as 4, 17"],
    ),
    "other samples used": (
        lambda job: edit(job / "state/ledger.jsonl", 0, sha256="0"),
        ["ledger: epoch 1 did not use the samples that partition.npz and the configuration require"],
    ),
    "an epoch less in the ledger": (
        lambda job: relined(job / "state/ledger.jsonl", 1),
        ["ledger: the used samples cannot be verified: {job}/state/ledger.jsonl has no epoch 1"],
    ),
    "a torn ledger": (
        lambda job: (job / "state/ledger.jsonl").write_text('{"epoch": 1, "sam'),
        ["ledger: the used samples cannot be verified: {job}/state/ledger.jsonl is damaged"],
    ),
    "data converted anew": (
        lambda job: (job.parents[3] / MANIFEST).write_text("{}"),
        ["{root}/data/store/manifest.json is not the manifest of the training data"],
    ),
    "a flipped bit in the data": (
        lambda job: flip(job.parents[3] / SHARD),
        ["shard {root}/data/store/train-00000-of-00001.h5 is unreadable (the checksum differs from the manifest)"],
    ),
    "another configuration": (
        other_learning_rate,
        ["the configuration in summary.json was modified"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tamper", "said"), TAMPERING.values(), ids=TAMPERING)
def test_what_was_tampered_with_is_named_and_nothing_else(copy, verified, tamper, said):
    tamper(copy)
    status, found = verified(copy, shards=True)
    assert status == 1
    assert len(found["FAILED"]) == len(said)
    for line, begin in zip(found["FAILED"], said, strict=True):
        assert line.startswith(begin.format(job=copy, root=copy.parents[3]))


def test_a_damaged_checkpoint_is_told_with_what_is_damaged_and_what_follows(copy, verified):
    flip(newest(copy) / "rank-1.safetensors")
    _, found = verified(copy)
    assert "rank-1.safetensors is damaged" in found["FAILED"][0]
    assert found["FAILED"][0].endswith("; a resumed training will skip it")


def test_data_that_are_elsewhere_are_no_fault(copy, verified):
    shutil.rmtree(copy.parents[3] / "data")
    status, found = verified(copy)
    assert status == 0
    assert any("was not found; the data were not compared" in line for line in found["note"])


LEG = {"step": 0, "ranks": 2, "code": "0.1.0 (0123456789ab)"}
REASONS = {
    "other ranks": (
        {"legs": [LEG, LEG | {"step": 9, "ranks": 3}]},
        {},
        "number of ranks changed (2 from step 0, 3 from step 9)",
    ),
    "other code": (
        {"legs": [LEG, LEG | {"step": 9, "code": "0.2.0"}]},
        {},
        "its code changed (0.1.0 (0123456789ab) from step 0, 0.2.0 ",
    ),
    "with changes": ({"code_version": "0.1.0 (0123456789ab+)"}, {}, "its code had uncommitted changes"),
    "no commit": ({"code_version": "0.1.0"}, {}, "contains no commit"),
    "asynchronous": (
        {},
        {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3}},
        "do not wait for each other",
    ),
    "paused": (
        {"paused_within_epoch": True},
        {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3, "transport": "simulated"}},
        "stopped and resumed within an epoch",
    ),
    "fastest": (
        {},
        {"algorithm": {"name": "allreduce", "reduction": "fastest"}},
        "lets MPI choose the order",
    ),
    "measured": (
        {},
        {"parallel": {"transport": "simulated", "simulation": {"sample_seconds": "measured"}}},
        "the speed of the machine",
    ),
    "GPU": ({}, {"parallel": {"gpus_per_rank": 1}}, "trained on GPUs"),
    "own network": ({}, {"model": {"name": "mine.py:net"}}, "it needs mine.py, of which no copy is kept"),
}


@pytest.mark.parametrize(("summary", "settings", "said"), REASONS.values(), ids=REASONS)
def test_every_reason_against_doing_it_again_is_told(copy, verified, monkeypatch, summary, settings, said):
    monkeypatch.chdir(copy)
    (copy / "mine.py").touch()
    if settings:
        run = Run.model_validate(settings)
        change(copy, config=run.model_dump(mode="json"), config_hash=run.hash)
    change(copy, **summary)
    _, found = verified(copy)
    told = [line for line in found["note"] if line.startswith("not reproducible bit for bit: ")]
    assert len(told) == 1
    assert said in told[0]
    assert not any("reproducible" in line for line in found["ok"])


def test_other_packages_are_a_note(copy, verified):
    change(copy, packages={"numpy": "0.1", "python": platform.python_version(), "no-such": "1"})
    status, found = verified(copy)
    (told,) = [line for line in found["note"] if "packages" in line]
    assert (
        f"numpy is {np.__version__} (summary.json: 0.1); no-such is not installed (summary.json: 1)" in told
    )
    assert "python" not in told
    assert status == 0


def attempted(job, *attempts):
    (job / "state/attempts.jsonl").write_text("".join(f"{json.dumps(ATTEMPT | each)}\n" for each in attempts))


def test_the_attempts_are_told(copy, verified):
    attempted(copy, {}, GO_ON | {"reached": 12, "saved": 12, "reason": "finished"})
    _, found = verified(copy)
    assert "attempts: 2 (1 preempted, 1 finished); repeated steps: 3" in found["note"]


def test_a_summary_of_an_older_version_has_fewer_numbers(copy, verified):
    path = copy / "summary.json"
    content = json.loads(path.read_text())
    for key in ("content_sha256", "messages_sent", "training_seconds"):
        content.pop(key, None)
    path.write_text(json.dumps(content))
    status, found = verified(copy)
    assert (status, found["FAILED"]) == (0, [])
    assert any("the numbers were not compared, because a key is missing" in line for line in found["note"])


def test_the_error_of_an_unfinished_training_is_told(copy):
    (copy / "summary.json").unlink()
    attempted(copy, {"reason": "diverged", "error": "the loss is nan"})
    with pytest.raises(
        UserError, match=r"summary.json is missing \(diverged: the loss is nan\); to finish it"
    ):
        verify_runs([str(copy)], False)


def test_a_reader_of_the_user_is_not_kept_with_the_run(copy, verified, monkeypatch):
    monkeypatch.chdir(copy)
    (copy / "mine.py").touch()
    config = json.loads((copy / "summary.json").read_text())["config"]
    config["data"] |= {"dataset": "mine", "source": "x", "reader": {"name": "mine.py:Reader"}}
    change(copy, config=config)
    assert any("it needs mine.py, the reader of the data" in line for line in verified(copy)[1]["note"])


def test_the_effective_time_is_that_of_a_clock_on_the_wall(copy, verified):
    attempted(copy, {}, GO_ON | {"reached": 12, "saved": 12, "reason": "finished"})
    change(
        copy,
        training_seconds=90.0,
        seconds={"total": 119.0},
        config=Run().model_dump(mode="json"),
        config_hash=Run().hash,
    )
    _, found = verified(copy)
    assert any("effective training time ratio 75.0 % of 120.0 s" in line for line in found["note"])


def test_with_another_number_of_ranks_within_an_epoch_of_few_steps_the_ledger_only_speaks_for_itself(
    copy, verified
):
    job = copy.parents[1] / "short-parts/seed-0"
    change(job, legs=[{"step": 0, "ranks": ranks, "code": "0.1.0 (0123456789ab)"} for ranks in (5, 3)])
    edit(job / "state/ledger.jsonl", 0, sha256="0")
    status, found = verified(job)
    assert status == 0
    assert any("not compared with partition.npz" in line for line in found["note"])


def test_a_folder_above_stands_for_all_trainings_in_it(workspace, capsys):
    assert verify_runs([str(workspace / "results/t")], False) == 0
    out = capsys.readouterr().out
    assert [f"{workspace}/results/t/{case}/seed-0" in out.splitlines() for case in CASES] == [True] * len(
        CASES
    )


def test_one_bad_training_of_many_is_enough(copy, capsys):
    flip(copy / "model.safetensors")
    assert verify_runs([str(copy.parents[1])], False) == 1
    assert capsys.readouterr().out.count("FAILED") == 1


def test_a_training_that_is_not_finished_is_told_with_its_command(copy):
    (copy / "summary.json").unlink()
    done = nnlo("verify", str(copy.parents[1]))
    assert done.returncode == 2
    assert done.stderr == (
        f"nnlo: error: {copy}: the training is not finished: summary.json is missing; to finish it: "
        "nnlo run FILE --run allreduce --seed 0 (FILE: the experiment file)\n"
    )
    assert done.stdout.count("exactly once") == len(CASES) - 1


@pytest.mark.parametrize("summary", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_damaged_summary_is_told(copy, summary):
    (copy / "summary.json").write_bytes(summary)
    with pytest.raises(UserError, match=r"summary\.json is cut short or damaged"):
        verify_runs([str(copy)], False)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"algorithm": {"name": "sync"}}, "algorithm: "),
        ({"model": {"name": "no"}}, "model.name: unknown model"),
    ],
)
def test_a_configuration_that_is_none_here_is_told(copy, config, said):
    change(copy, config=config)
    advice = "run the command in the folder in which the task was trained, with the nnlo version that wrote the file: 0.1.0 (01234"
    with pytest.raises(UserError, match=f"summary.json: config: {said}.*; {re.escape(advice)}"):
        verify_runs([str(copy)], False)


GONE = {
    "model": ({"model": {"name": "no.py:net"}}, "it needs no.py, of which no copy is kept with the run and which was not found"),
    "weights": ({"model": {"weights": "no.pt"}}, "it needs no.pt, .* was not found"),
    "loss": ({"loss": "no.py:loss", "metrics": ["no.py:metric"]}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("config", "said"), GONE.values(), ids=GONE)
def test_files_of_the_user_may_be_gone(copy, verified, config, said):
    recorded = json.loads((copy / "summary.json").read_text())["config"] | config
    change(
        copy,
        config=recorded,
        input_files={"no.pt": "0"},
        config_hash=Run.model_validate(recorded, context=RECORDED_RUN_CONTEXT).hash,
    )
    status, found = verified(copy)
    assert (status, found["FAILED"]) == (0, [])
    assert any(re.search(said, line) for line in [*found["note"], *found["ok"]])


def test_results_of_other_people_run_no_code(copy, verified, monkeypatch):
    """A summary that names files of the user, which exist, is checked without running the files."""
    monkeypatch.chdir(copy)
    (copy / "evil.py").write_text("open('mark', 'w')")
    recorded = json.loads((copy / "summary.json").read_text())["config"]
    own = {"name": "evil.py:Evil", "args": {}}
    recorded |= {
        "algorithm": own,
        "problem": own,
        "compression": own,
        "loss": "evil.py:loss",
        "metrics": ["evil.py:m"],
    }
    recorded |= {"model": {"name": "evil.py:net"}, "parallel": {"ranks": 2}}
    recorded["data"] |= {"dataset": "mine", "source": "x", "reader": own}
    run = Run.model_validate(recorded, context=RECORDED_RUN_CONTEXT)
    change(copy, config=recorded, config_hash=run.hash)
    _, found = verified(copy)
    assert not (copy / "mark").exists()
    assert any("evil.py:Evil may not wait for each other" in line for line in found["note"])


def test_an_epoch_that_was_cut_short_is_told(copy, verified):
    edit(copy / "state/ledger.jsonl", 1, cut=True, samples=77)
    _, found = verified(copy)
    assert any("ledger: each of 1 epochs used each of its " in line for line in found["ok"])
    assert "ledger: epoch 2 ended before its last step: it used 77 samples, each once" in found["ok"]


def test_a_fold_that_is_not_finished_is_told_with_its_command(tmp_path):
    (tmp_path / "results/t/one/seed-3/fold-2/state").mkdir(parents=True)
    with pytest.raises(UserError, match=r"nnlo run FILE --run one --seed 3 --fold 2 \(FILE"):
        verify_runs([str(tmp_path)], False)


def test_a_trial_that_a_search_paused_is_a_note(tmp_path, verified):
    fold = tmp_path / "search/trials/0003/fold-1"
    for folder in (fold, tmp_path / "search"):
        (folder / "state").mkdir(parents=True)
    for epochs in (9, 10):
        Result(FoldTask(3, 1, epochs), "finished").write(tmp_path / "search")
    status, found = verified(tmp_path / "search")
    assert (status, found["note"]) == (0, ["not finished: the search paused it after epoch 10"])
    Result(FoldTask(3, 1, 10), "failed", error="boom").write(tmp_path / "search")
    assert verified(tmp_path / "search")[1]["note"] == [
        "not finished: its result in the search is failed: boom"
    ]
    for path in fold.glob("epochs-*.json"):
        path.unlink()
    with pytest.raises(UserError, match="to finish it: nnlo search FILE"):
        verify_runs([str(tmp_path / "search")], False)


def test_folders_without_trainings_are_told(tmp_path):
    assert "folder not found" in refused(nnlo("verify", str(tmp_path / "no")))
    with pytest.raises(UserError, match="no training found"):
        verify_runs([str(tmp_path)], False)


def test_it_does_not_need_torch(workspace, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    done = nnlo_process("verify", str(workspace / "results/t/dsgd/seed-0"), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok" in done.stdout
