"""Passwords and tokens of an experiment: in no file that is shown, in no message, in no argument of a process."""

import base64
import io
import json
import os
import stat
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from helpers.nnlo_command import nnlo, refused
from helpers.training_here import run_here

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.secrets import conceal, mask, reveal
from nnlo_lib.data.store.shard_copy import run_copy_command
from nnlo_lib.launch import launcher
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

PASSWORD, TOKEN = "TOPSECRET5", "SECRETTOKEN7"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pw@host:80/x.zip", "http://me:***@host:80/x.zip"),
        ("http://me:p@ss@host/x.zip", "http://me:***@host/x.zip"),
        ("s3://KEY:pw@bucket", "s3://KEY:***@bucket"),
        ("curl -d x https://hooks.slack.com/services/T0/B0/abc", "curl -d x https://hooks.slack.com/***"),
        (
            "curl https://discord.com/api/webhooks/12/abc -d y",
            "curl https://discord.com/api/webhooks/*** -d y",
        ),
        ("https://api.telegram.org/bot12:AAA/sendMessage", "https://api.telegram.org/bot***/sendMessage"),
        ('curl -H "Authorization: Bearer abcdef" h', 'curl -H "Authorization: Bearer ***" h'),
        ('"curl -H \\"PRIVATE-TOKEN: abc\\" h"', '"curl -H \\"PRIVATE-TOKEN: ***\\" h"'),
        ("x ghp_abcdef123456 y", "x ghp_*** y"),
        ("hf_AbCdEf0123456789", "hf_***"),
        ("glpat-abcdef0123", "glpat-***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
        ("https://h/x.zip?a=1&token=abc", "https://h/x.zip?a=1&token=***"),
        ("https://h/x?X-Amz-Date=1&X-Amz-Signature=ab", "https://h/x?X-Amz-Date=1&X-Amz-Signature=***"),
        ("https://h/x?sig=ab&b=2", "https://h/x?sig=***&b=2"),
        ("curl -u me:pw h", "curl -u me:*** h"),
        ("API_TOKEN=abc send", "API_TOKEN=*** send"),
    ],
)
def test_known_forms_are_masked_and_masked_text_stays(text, shown):
    assert mask(text) == shown == mask(shown)


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/a@b.zip", "scp host:/a me@host:/b", "http://me:${PW}@host/x", "root://host/{source} {target}",
        "12:30:01 nnlo: epoch 3: loss 0.1", "models hf_resnet50, num_tokens=5", "token: must be an integer",
        "curl -H 'Authorization: Bearer ${TOKEN}' https://h", "https://h/x?keyword=a&download=1",
    ],
)  # fmt: skip
def test_other_texts_and_variables_stay(text):
    assert mask(text) == text


class Server:
    """Web server of one archive, for those who have a password."""

    def __init__(self, password: str) -> None:
        self.requests, self.password = 0, password
        rows = [f"{n % 7},{n % 5},{'xy'[n % 7 > 3]}" for n in range(200)]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("t.csv", "\n".join(["a,b,l", *rows]))
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests += 1
                known = base64.b64encode(f"me:{server.password}".encode()).decode()
                if self.headers["Authorization"] != f"Basic {known}":
                    return self.send_error(401)
                self.send_response(200)
                self.send_header("Content-Length", str(len(archive.getvalue())))
                self.end_headers()
                self.wfile.write(archive.getvalue())
                return None

            def log_message(self, *_: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self._http.server_port}/x.zip"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server():
    server = Server(PASSWORD)
    yield server
    server.close()


def experiment(source: str, **data: str) -> dict:
    return {
        "name": "t",
        "data": {"dataset": "mine", "source": source, "reader": {"name": "table", "train": "t.csv", "label": "l"}, **data},
        "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
        "train": {"epochs": 1, "batch_size": 32},
        "parallel": {"ranks": 2, "transport": "simulated"},
        "observe": {"notify": f"true https://hooks.example/T0/{TOKEN}"},
    }  # fmt: skip


def write(folder: Path, settings: dict) -> None:
    (folder / "exp.yaml").write_text(yaml.safe_dump(settings))


def holders(folder: Path, *secrets: str) -> set[str]:
    """Return the files that have one of the secrets."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder))
        for path in files
        if any(each.encode() in path.read_bytes() for each in secrets)
    }


def test_a_training_with_written_secrets_shows_them_nowhere_and_keeps_them_for_the_owner(server, tmp_path):
    settings = experiment(f"http://me:{PASSWORD}@{server.place}")
    write(tmp_path, settings)
    done = run_here("exp.yaml", folder=tmp_path)
    assert not done.returncode, done.stderr
    said = done.stdout + done.stderr
    assert "data.source: has a password or token; write ${VARIABLE} in its place" in said
    assert "observe.notify: has a password or token" in said
    assert PASSWORD not in said
    assert TOKEN not in said
    assert f"http://me:***@{server.place}" in said
    config = "results/t/allreduce/config.json"
    assert holders(tmp_path, PASSWORD, TOKEN) == {"exp.yaml", config}
    assert stat.S_IMODE((tmp_path / config).stat().st_mode) == 0o600

    # Another password is neither another training nor other data.
    settings["data"]["source"] = f"http://me:ANOTHER6@{server.place}"
    write(tmp_path, settings)
    assert "already finished" in run_here("exp.yaml", folder=tmp_path).stderr
    settings["data"]["source"] = f"http://me:${{NNLO_TEST_PW}}@{server.place}"
    write(tmp_path, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNLO_TEST_PW", "x")
        assert "already finished" in run_here("exp.yaml", folder=tmp_path).stderr
    assert server.requests == 1

    # What is written from the results lacks the secrets, and says so.
    again = tmp_path / "again"
    done = nnlo("reproduce", "results/t/allreduce/seed-0", str(again), folder=tmp_path)
    assert "secrets are not stored: replace each *** in the file" in done.stdout + done.stderr
    assert holders(again, PASSWORD, TOKEN) == set()
    assert "data.source: has *** in place of a secret" in refused(
        nnlo("check", "experiment.yaml", folder=again)
    )


def test_variables_are_used_and_not_stored(server, tmp_path, monkeypatch):
    copy = 'sh -c \'cp "$1" "$2"\' ${NNLO_TEST_PW} {source} {target}'
    settings = experiment(
        f"http://me:${{NNLO_TEST_PW}}@{server.place}", stage_to="staged", stage_command=copy
    )
    (tmp_path / "staged").mkdir()
    settings["observe"] = {"notify": 'X=1; echo "${X} ${NNLO_TEST_PW} ${NNLO_EVENT}" > notified'}
    write(tmp_path, settings)
    said = refused(run_here("exp.yaml", folder=tmp_path))
    for key in ("data.source", "data.stage_command", "observe.notify"):
        assert f"{key}: the environment variable NNLO_TEST_PW is not set; `export NNLO_TEST_PW=...`" in said
    assert said.count("is not set") == 3
    assert server.requests == 0

    monkeypatch.setenv("NNLO_TEST_PW", PASSWORD)
    done = run_here("exp.yaml", folder=tmp_path)
    assert not done.returncode, done.stderr
    assert (tmp_path / "notified").read_text() == f"1 {PASSWORD} finished\n"
    assert holders(tmp_path, PASSWORD) == {"notified"}
    assert PASSWORD not in done.stdout + done.stderr
    summary = json.loads((tmp_path / "results/t/allreduce/seed-0/summary.json").read_text())
    assert summary["config"]["data"]["source"] == f"http://me:${{NNLO_TEST_PW}}@{server.place}"
    assert stat.S_IMODE((tmp_path / "results/t/allreduce/config.json").stat().st_mode) != 0o600


@pytest.mark.parametrize(
    "source", ["http://me:WRONG8@PLACE", "http://me:${NNLO_TEST_PW}@PLACE", "${NNLO_TEST_URL}"]
)
def test_a_refused_download_names_the_address_without_the_password(server, tmp_path, monkeypatch, source):
    monkeypatch.setenv("NNLO_TEST_PW", "WRONG8")
    monkeypatch.setenv("NNLO_TEST_URL", f"http://me:WRONG8@{server.place}")
    write(tmp_path, experiment(source.replace("PLACE", server.place)) | {"observe": {}})
    done = run_here("exp.yaml", folder=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 2
    assert "cannot download" in said
    assert "HTTP status 401" in said
    assert "WRONG8" not in said
    assert holders(tmp_path, "WRONG8") <= {"exp.yaml"}


def test_a_local_folder_is_named_by_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("NNLO_TEST_DATA", str(tmp_path / "mine"))
    data = DataConfig(dataset="x", source="${NNLO_TEST_DATA}/t.csv", reader={"name": "table", "label": "l"})
    assert data.store_settings.source == str(tmp_path / "mine")


def test_a_copy_command_that_prints_its_password_does_not_pass_it_on(tmp_path, monkeypatch):
    monkeypatch.setenv("NNLO_TEST_PW", PASSWORD)
    command = "sh -c 'echo wrong: $0; exit 3' ${NNLO_TEST_PW} {source} {target}"
    with pytest.raises(Exception, match=r"ended with status 3: wrong: \$\{NNLO_TEST_PW\}") as caught:
        run_copy_command(command, tmp_path / "a", tmp_path / "b")
    assert PASSWORD not in str(caught.value)


def test_files_of_other_names_are_other_data_whatever_their_tokens():
    """A `token` can be all that tells two files apart; a signature or a password never is."""

    def identity(url: str) -> str:
        reader = {"name": "table", "train": "t.csv", "label": "l"}
        return DataConfig(dataset="x", source=url, reader=reader).store_settings.hash

    assert (
        identity("http://me:a@h/x.zip")
        == identity("http://me:b@h/x.zip")
        == identity("http://me:${P}@h/x.zip")
    )
    assert identity("https://h/x.zip?sig=a") == identity("https://h/x.zip?sig=b")
    for one, other in (("https://h/dl?token=a", "https://h/dl?token=b"), ("https://h/hooks/a", "https://h/hooks/b"),
                       ("https://h/x?key=a", "https://h/x?key=b"), ("http://me:a@h/x", "http://you:a@h/x"),
                       ("http://${A}/x", "http://${B}/x")):  # fmt: skip
        assert identity(one) != identity(other)


def test_no_process_has_a_secret_among_its_arguments(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = experiment(
        f"http://me:{PASSWORD}@h/x.zip",
        stage_to="x",
        stage_command=f"get --password={TOKEN} {{source}} {{target}}",
    )
    whole = Experiment.model_validate(settings)
    plan = Plan.of(whole)
    ((name, store),) = plan.stores.items()
    options = [
        plan.fetch_options("mine", store.raw.name),
        plan.convert_options(name),
        plan.result_settings("allreduce"),
    ]
    assert not any(PASSWORD in each or TOKEN in each for each in options)
    assert f"http://me:{PASSWORD}@h/x.zip" in map(reveal, options[0].replace("'", "").split())

    started = {}
    monkeypatch.setattr(
        launcher.subprocess, "Popen", lambda command, **how: started.update(how, command=command)
    )
    task = Task("t", "allreduce", Run.model_validate(whole.settings), 0, None, 1, Path("m"), tmp_path)
    launcher._start_launcher_process(task, "mpiexec", TimeLimit(None, None))
    assert not any(PASSWORD in word or TOKEN in word for word in started["command"])
    monkeypatch.setattr(os, "environ", started["env"])
    assert Task.parse(reveal(started["command"][-1])).run == task.run
    assert conceal("nothing to hide") == "nothing to hide"
