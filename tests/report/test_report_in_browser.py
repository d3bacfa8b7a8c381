"""In a real browser the page fetches nothing, causes no error messages, and is complete at every width."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def page(fake, report):
    return report(fake.quickstart())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_quietly(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [1280, 400])
def test_fifteen_runs_measured_and_simulated_fit(browser, fake, report, width):
    for number in range(15):
        (fake.gossip if number % 2 else fake.job)(f"algorithm-{number}", 1, epochs=3)
        (fake.gossip if number % 2 else fake.job)(f"algorithm-{number}", 2, epochs=3)
    browser.open(report(fake), width)
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    table = "document.querySelector('.comparison')"
    assert browser.evaluate(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    assert browser.evaluate("document.querySelectorAll('#traffic .sheet tbody tr').length") == 15
    assert browser.evaluate("document.querySelectorAll('#nodes .sheet tbody tr').length") == 7


def test_the_main_elements_are_there(browser, page):
    browser.open(page)
    assert browser.evaluate("document.title") == "fake · NNLO"
    counted = {
        ".comparison tbody tr": 2,
        ".chart svg": 4,
        ".chart .mean": 8,
        ".chart .job": 24,
        ".matrix tbody tr": 20,
        "#time .bar": 3,
        "#traffic .bar": 2,
        ".layers tbody tr": 3,
    }
    for selector, count in counted.items():
        assert browser.evaluate(f"document.querySelectorAll({selector!r}).length") == count, selector


def test_lines_stay_inside_their_chart(browser, page):
    browser.open(page)
    outside = """[...document.querySelectorAll('.chart')].filter(chart => {
        const frame = chart.querySelector('svg').getBoundingClientRect();
        return [...chart.querySelectorAll('.mean, .job, text')].some(each => {
            const box = each.getBoundingClientRect();
            return box.left < frame.left - 2 || box.right > frame.right + 2
                || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
        });
    }).length"""
    assert browser.evaluate(outside) == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(browser, page, dark):
    browser.open(page, dark=dark)
    contrast = """(() => {
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
    assert browser.evaluate(contrast) > 4.5


def test_the_page_prints(browser, page, tmp_path):
    browser.open(page, width=720)  # about the width of A4 without margins, in pixels
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("document.documentElement.scrollWidth") == 720
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.printed(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
