"""In a real browser a page fetches nothing, logs nothing, fits the window, and keeps its lines inside the charts."""

import pytest
from helpers.synthetic_search import MadeUp

from nnlo_lib.report.page import write_search_page

pytestmark = pytest.mark.browser
EACH_COLOR = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
EACH_WIDTH = pytest.mark.parametrize("width", [1280, 400])

# The lowest contrast of a text to its ground, by the formula of WCAG.
CONTRAST = """(() => {
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
            .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const texts = ['.headline', '.aside', 'thead th', 'nav a', 'summary', '.matrix td'];
    const parts = [...document.querySelectorAll('.part')].filter(part => part.textContent.trim());
    return Math.min(
        ...texts.map(each => ratio(light(getComputedStyle(document.querySelector(each)).color), paper)),
        ...parts.map(each => ratio(light(getComputedStyle(each).color), light(getComputedStyle(each).backgroundColor))));
})()"""
ELEMENTS = {
    ".comparison tbody tr": 2, ".chart svg": 4, ".chart .mean": 8, ".chart .job": 24, ".matrix tbody tr": 20,
    "#time .bar": 3, "#traffic .bar": 2, ".layers tbody tr": 3,
}  # fmt: skip


@pytest.mark.real
@EACH_COLOR
def test_the_page_of_a_classification_is_quiet_complete_and_readable(browser, fake, report, dark):
    page = report(fake.quickstart())
    browser.open(page, width=400, dark=dark)
    browser.open(page, dark=dark)
    assert browser.page.title() == "fake · NNLO"
    assert {selector: browser.count(selector) for selector in ELEMENTS} == ELEMENTS
    assert browser.charts_with_marks_outside(".chart svg", ".mean, .job, text") == 0
    assert browser.page.evaluate(CONTRAST) > 4.5


@pytest.mark.exhaustive
@EACH_WIDTH
def test_fifteen_measured_and_simulated_runs_fit(browser, fake, report, width):
    for number in range(15):
        for seed in (1, 2):
            (fake.gossip if number % 2 else fake.job)(f"algorithm-{number}", seed, epochs=3)
    browser.open(report(fake), width)
    table = "document.querySelector('.comparison')"
    assert browser.page.evaluate(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    assert (browser.count("#traffic .sheet tbody tr"), browser.count("#nodes .sheet tbody tr")) == (15, 7)


@pytest.mark.exhaustive
def test_the_page_prints(browser, fake, report):
    page = report(fake.quickstart())
    browser.page.emulate_media(media="print")
    browser.open(page, width=720)  # about the width of A4 without margins, in pixels
    assert browser.page.pdf(format="A4").startswith(b"%PDF")
    browser.page.emulate_media(media="screen")


@pytest.mark.exhaustive
@EACH_WIDTH
def test_each_attempt_has_a_visible_bar(browser, fake, report, width):
    fake.attempts(fake.job(seed=1), ("time limit", 8, 0, 600, 595), ("finished", 2, 595, 820, 820))
    fake.attempts(fake.job("short"), ("killed", 0, 0, 0, 0), *[("preempted", 1, 0, 1, 1)] * 12)
    browser.open(report(fake), width)
    widths = "[...document.querySelectorAll('.attempt')].map(each => each.getBoundingClientRect().width)"
    assert browser.count(".attempt") == 2 + 13
    assert browser.page.evaluate(f"Math.min(...{widths})") >= 3
    labeled = "[...document.querySelectorAll('#attempts .track')].every(each => each.ariaLabel.includes('attempt 1, '))"
    assert browser.page.evaluate(labeled)


@pytest.mark.exhaustive
@EACH_WIDTH
def test_the_page_of_a_search_fits_and_its_lines_stay_inside_the_charts(browser, tmp_path, width):
    made = MadeUp(tmp_path, folds={"k": 2})
    for _ in range(15):
        made.trial()
    write_search_page(tmp_path / "report.html", made.folder)
    browser.open(tmp_path / "report.html", width, dark=width == 400)
    drawn = {".uprights path:is([class^=shade], .leader)": 15, ".spread": 12, ".lanes i": 30}
    assert {selector: browser.count(selector) for selector in drawn} == drawn
    assert browser.charts_with_marks_outside(".chart svg, .uprights", "path, text, circle") == 0
