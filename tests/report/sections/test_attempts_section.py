"""The section of attempts appears only if a training was interrupted, and shows the recorded attempts."""

import json
import re

import pytest
from helpers.html_page import HOSTILE, check

START = "2026-01-02T03:{minute:02d}:00+00:00"


def attempts(folder, *ended):
    """Write records of attempts two minutes apart, each (reason, minutes, first step, reached step, saved step)."""
    minute, lines = 0, []
    for number, (reason, minutes, begun, reached, saved) in enumerate(ended, 1):
        lines.append({
            "attempt": number, "started": START.format(minute=minute), "ended": START.format(minute=minute + minutes),
            "seconds": 60.0 * minutes, "host": f"node{number}", "job": str(1000 + number), "reason": reason,
            "error": None, "from": begun, "reached": reached, "saved": saved, "ranks": 2,
        })  # fmt: skip
        minute += minutes + 2
    (folder / "state").mkdir()
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "state/attempts.jsonl").write_text(text)


@pytest.fixture
def interrupted(fake):
    """Return an experiment of three trainings: uninterrupted, preempted twice, and stopped by its time limit."""
    attempts(fake.job(seed=1), ("finished", 3, 0, 820, 820))
    attempts(
        fake.job(seed=2, fold=1),
        ("preempted", 4, 0, 300, 290), ("preempted", 2, 290, 400, 400), ("finished", 4, 400, 820, 820),
    )  # fmt: skip
    attempts(fake.job(seed=3), ("time limit", 8, 0, 600, 595), ("finished", 2, 595, 820, 820))
    fake.change(fake.folders[1], training_seconds=450.0, seconds={"total": 590.0})
    fake.change(fake.folders[2], training_seconds=505.0, seconds={"total": 590.0, "evaluate": 50.0})
    return fake


def test_it_says_what_was_recorded(interrupted, report):
    page = report(interrupted)
    said = " ".join(check(page).text.split())
    assert (
        "2 of 3 training tasks were interrupted and resumed (2 × preempted and 1 × time limit); 15 steps were repeated."
        in said
    )
    assert "2 of 3 training tasks had an unfinished attempt." in said
    assert table(page) == [
        ["allreduce seed 2, fold 1", "3", "2 × preempted and 1 × finished", "10", "150 s", "240 s", "75.0 %"],
        ["allreduce seed 3", "2", "1 × time limit and 1 × finished", "5", "45.0 s", "120 s", "92.5 %"],
    ]


def table(page):
    """Return the texts of the cells of the section's table, with ordinary spaces."""
    section = page.read_text().partition('<section id="attempts">')[2].partition("</section>")[0]
    body = section.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)
    ]
    return [[" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in row] for row in rows]


def test_the_bars_have_the_lengths_of_the_attempts(interrupted, report):
    page = report(interrupted).read_text()
    assert page.count('class="part attempt part-0"') == 2  # part-0 marks finished attempts
    for width, text in (
        ("40.0", "attempt 1, 240 s on node1: preempted at step 300"),
        ("20.0", "attempt 2, 120 s on node2: preempted at step 400"),
        ("80.0", "attempt 1, 480 s on node1: time limit at step 600"),
    ):
        assert f'style="width:{width}%" title="{text}"' in page.replace("\u00a0", " ")


def single(folder):
    attempts(folder, ("finished", 3, 0, 820, 820))


def none(folder):
    pass


def unreadable(folder):
    (folder / "state").mkdir()
    (folder / "state/attempts.jsonl").write_text('{"attempt": 1, "star')


@pytest.mark.parametrize("record", [single, none, unreadable], ids=lambda record: record.__name__)
def test_where_nothing_was_interrupted_nothing_is_shown(fake, report, record):
    record(fake.job())
    page = report(fake)
    assert "interrupted" not in check(page).text
    assert 'id="attempts"' not in page.read_text()
    assert 'href="#attempts"' not in page.read_text()


def test_a_torn_last_line_takes_nothing_from_the_others(interrupted, report):
    whole = report(interrupted).read_text()
    with (interrupted.folders[2] / "state/attempts.jsonl").open("a") as file:
        file.write('{"attempt": 3, "sta')
    checksums = re.compile(r"[0-9a-f]{64}")  # the page records checksums of its inputs
    assert checksums.sub("", report(interrupted).read_text()) == checksums.sub("", whole)


def test_what_ended_early_is_told(fake, report):
    for seed, ended in ((1, "early stopping: val_loss was not better 4 times"), (2, None)):
        folder = fake.job(seed=seed)
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(summary | {"ended_early": ended}))
    assert "1 of 2 training tasks ended early because a stopping rule applied." in check(report(fake)).text


def test_without_records_the_restarts_of_the_summary_are_told(fake, report):
    fake.job(restarts=2)
    assert "1 of 1 training task was interrupted and resumed (2 restarts)." in check(report(fake)).text


def test_virtual_seconds_are_not_set_against_those_of_attempts(fake, report):
    attempts(fake.gossip(), ("killed", 4, 0, 30, 20), ("finished", 4, 20, 820, 820))
    page = report(fake)
    check(page)
    assert table(page) == [["dsgd seed 1", "2", "1 × killed and 1 × finished", "10", "–", "120 s", "–"]]


def test_hostile_records_are_only_text(fake, report):
    attempts(fake.job(), (HOSTILE, 4, 0, 30, 20), ("finished", 4, 20, 820, 820))
    assert check(report(fake)).text.count(HOSTILE) >= 3


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_and_every_attempt_is_seen(browser, interrupted, report, width, dark):
    attempts(interrupted.job("short", 1), ("killed", 0, 0, 0, 0), *[("preempted", 1, 0, 1, 1)] * 12)
    browser.open(report(interrupted), width, dark=dark)
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    widths = "[...document.querySelectorAll('.attempt')].map(each => each.getBoundingClientRect().width)"
    assert browser.evaluate(f"{widths}.length") == 3 + 2 + 13
    assert browser.evaluate(f"Math.min(...{widths})") >= 3
    labelled = "[...document.querySelectorAll('#attempts .track')].every(each => each.ariaLabel.includes('attempt 1, '))"
    assert browser.evaluate(labelled)
