"""In a real browser a page fetches nothing, logs nothing, fits the window, draws every figure and answers its controls."""

import os
from pathlib import Path

import numpy as np
import pytest
from helpers.synthetic_runs import change_json
from helpers.synthetic_search import MadeUp

from nnlo_lib.report.page import write_search_page

pytestmark = pytest.mark.browser
EACH_LOOK = pytest.mark.parametrize(
    ("width", "dark"), [(1400, False), (400, True)], ids=["wide-light", "narrow-dark"]
)
# Path of axe.min.js (`npm pack axe-core`), which is not part of the repository.
AXE = os.environ.get("NNLO_AXE")


SMALL_TEXTS = """[...document.querySelectorAll("body *")].filter(each => parseFloat(getComputedStyle(each).fontSize) < 11
    && each.getClientRects().length && [...each.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
    .map(each => each.outerHTML.slice(0, 80))"""


def is_complete(browser):
    """Wait until all figures are drawn; with axe, assert that no rule is seriously violated."""
    drawn = (
        "document.querySelectorAll('.vega:not([data-ready])').length == 0 && document.querySelector('.vega')"
    )
    browser.page.wait_for_function(drawn)
    assert browser.complaints == []
    assert browser.page.evaluate("document.documentElement.scrollWidth == window.innerWidth")
    has_marks = "[...document.querySelectorAll('.vega')].every(each => each.querySelectorAll('svg path, svg line').length > 5)"
    assert browser.page.evaluate(has_marks)
    assert browser.page.evaluate(SMALL_TEXTS) == []
    # Code boxes can be scrolled by keyboard.
    assert browser.count("pre:not([tabindex='0'])") == 0
    if AXE:
        browser.page.context.new_cdp_session(browser.page).send("Page.setBypassCSP", {"enabled": True})
        browser.page.reload()
        browser.page.wait_for_function(drawn)
        browser.page.evaluate(Path(AXE).read_text())
        serious = "axe.run().then(found => found.violations.filter(each => ['serious', 'critical'].includes(each.impact)).map(each => each.id))"
        assert browser.page.evaluate(serious) == []


@pytest.mark.real
@EACH_LOOK
def test_the_page_of_a_classification_is_quiet_and_its_legend_hides_a_run(browser, fake, report, width, dark):
    browser.open(report(fake.quickstart()), width, dark)
    is_complete(browser)
    first = browser.page.locator("figure.chart .vega").nth(1)
    lines = first.locator("svg .mark-line path[stroke='var(--run-0)']")
    assert lines.count() > 0
    browser.page.locator(".legend button").first.click()
    browser.page.wait_for_timeout(300)
    assert lines.count() == 0
    first.focus()
    before = first.inner_text()
    browser.page.keyboard.press("+")
    browser.page.wait_for_timeout(300)
    assert first.inner_text() != before
    head = browser.page.locator(".comparison thead th button").nth(1)
    if width > 640:
        head.click()
        assert browser.page.locator(".comparison th[aria-sort=ascending]").count() == 1
    with browser.page.expect_download() as saved:
        browser.page.get_by_role("button", name="SVG").nth(1).click()
    text = saved.value.path().read_text()
    assert text.startswith("<svg")
    assert "var(--" not in text


@EACH_LOOK
@pytest.mark.exhaustive
def test_maps_play_and_pause_and_fit_the_window(browser, fake, report, width, dark):
    folder, arrays = fake.job("dinno", 1), {}
    for step in (20, 40, 60):
        arrays |= {f"plan_{step}": np.eye(90, 120), f"map_{step}": np.full((7, 90, 120), step / 100)}
        moves = step - np.array([[[10]], [[0]]]) + np.zeros((7, 2))  # two rounds
        arrays |= {f"positions_{step}": moves, f"links_{step}": np.stack([np.eye(7), np.ones((7, 7))]) > 0}
    np.savez(folder / "maps.npz", **arrays)
    browser.open(report(fake), width, dark)
    is_complete(browser)
    film = browser.page.locator(".film")
    shown = film.locator(".maps:visible")
    assert (shown.get_attribute("data-step"), shown.locator("img").count()) == ("60", 7)
    assert (shown.locator("circle").count(), shown.locator("line").count()) == (7, 21)
    film.get_by_role("button", name="play").click()
    film.locator("output", has_text="step 40").wait_for()
    film.get_by_role("button", name="pause").click()
    film.get_by_role("slider").fill("0")
    assert (film.locator("output").inner_text(), shown.get_attribute("data-step")) == ("step 20", "20")
    robots = shown.locator("g[transform]")
    assert robots.first.get_attribute("transform") == "translate(87 87)"  # (20 + 1/2) cells of 512/120
    film.get_by_role("button", name="play").click()
    film.locator(
        "[data-step='40'] g[transform='translate(130 130)']"
    ).first.wait_for()  # on the way from 30 to 40


@EACH_LOOK
@pytest.mark.exhaustive
def test_the_page_of_a_search_is_quiet_and_a_chosen_trial_is_drawn_in_every_figure(
    browser, tmp_path, width, dark
):
    made = MadeUp(tmp_path, folds={"k": 2}, fidelity={"name": "asha", "first": 1})
    for number in range(15):
        made.trial(rungs=[1, 3, 9][: 1 + number % 3])
    write_search_page(tmp_path / "report.html", made.folder)
    browser.open(tmp_path / "report.html", width, dark)
    is_complete(browser)
    importance = browser.page.locator("figure").filter(has=browser.page.locator("b", has_text="Importance"))
    ticks = importance.locator(".role-axis-label text").all_text_contents()
    assert len(set(ticks)) == len(ticks) > 2
    browser.page.locator("a[data-trial='4']").click()
    browser.page.wait_for_timeout(300)
    assert browser.count("svg [stroke='var(--run-1)']") > 3


@EACH_LOOK
@pytest.mark.exhaustive
def test_a_wide_comparison_of_long_names_fits_and_no_name_of_a_bar_is_cut(browser, fake, report, width, dark):
    name = "wasserstein-gan-with-gradient-penalty-and-two-time-scales-"
    for number in range(3):
        folder = fake.job(f"{name}{number}", 1, epochs=4, accuracy=False)
        change_json(folder / "evaluation.json", **dict.fromkeys(("distance", "critic_loss", "generator_loss", "loss_gap", "mmd"), 0.1))  # fmt: skip
    browser.open(report(fake), width, dark)
    is_complete(browser)
    assert browser.page.evaluate(
        "(each => each.scrollWidth <= each.clientWidth)(document.querySelector('#comparison .scroll'))"
    )
    assert browser.charts_with_marks_outside(".vega", "svg text") == 0


@pytest.mark.exhaustive
def test_fifteen_runs_print_and_say_their_numbers_without_scripts(browser, fake, report):
    for number in range(15):
        (fake.gossip if number % 2 else fake.job)(f"algorithm-{number}", 1, epochs=3)
    page = report(fake)
    browser.open(page, 400)
    is_complete(browser)
    colored = browser.page.locator("#curves .vega").first.locator("svg .mark-line path[stroke^='var(--run']")
    assert colored.count() == 0
    browser.page.locator(".legend button").nth(3).click()
    first = "figures.find(each => document.querySelector('#curves .vega').contains(each.container()))"
    browser.page.wait_for_function(f"{first}.signal('hidden').length == 14")
    assert colored.count() == 1
    figure = browser.page.locator("#curves .vega").first
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    browser.page.mouse.move(box["x"] + 150, box["y"] + 100)
    browser.page.mouse.move(box["x"] + 155, box["y"] + 100)
    browser.page.wait_for_function(f"{first}.signal('lit') >= 0")
    assert "algorithm-" in browser.page.locator("#vg-tooltip-element").inner_text()
    assert browser.page.pdf(format="A4").startswith(b"%PDF")
    plain = browser.page.context.browser.new_context(java_script_enabled=False).new_page()
    plain.goto(page.as_uri())
    assert plain.locator("#curves table").first.is_visible()
