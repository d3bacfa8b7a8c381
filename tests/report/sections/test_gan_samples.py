"""The page embeds the sample images of generators."""

from base64 import b64encode

from PIL import Image


def sheet(folder, colour=0):
    Image.new("L", (16, 16), colour).save(folder / "samples.png")
    return f"data:image/png;base64,{b64encode((folder / 'samples.png').read_bytes()).decode()}"


def test_each_run_shows_the_sheet_of_its_first_seed(fake, report):
    first, _ = sheet(fake.job("wgan", 1)), sheet(fake.job("wgan", 2), colour=255)
    fake.job("classifier", 1)
    other = sheet(fake.job("lsgan", 1), colour=9)
    page = report(fake).read_text()
    assert page.count('<img class="samples"') == 2
    assert first in page
    assert other in page
    assert '<a href="#samples">' in page


def test_without_generators_there_is_no_such_section(fake, report):
    fake.job()
    assert "#samples" not in report(fake).read_text()
