"""Recomputation of the head of a page: counts, sentences, and the remarks below the comparison."""

from base64 import b64decode
from math import prod

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Trainings, counted
from helpers.recomputation.tensors import parameter_shapes


def check_counts(audit: Audit, raw: Trainings) -> None:
    """Compare runs, trainings, repetitions and parameters in the head of the page."""
    line = next(each for each in audit.page.first("header").all("p", "aside") if "training task" in each.text)
    audit.says(
        line,
        f"{counted(len(raw.runs), 'run')}, {counted(len(raw.jobs), 'training task')} over {raw.repetitions}",
    )
    for job in {jobs[0].summary["model"]["name"]: jobs[0] for jobs in raw.runs.values()}.values():
        count = sum(map(prod, parameter_shapes(job.folder / "model.safetensors").values()))
        audit.says(line, f"{job.summary['model']['name']} with {{}} parameters", count)


def check_remarks(audit: Audit, raw: Trainings) -> None:
    """Compare the sentences below the comparison."""
    remark = audit.page.section("comparison").first("p", "aside")
    audit.says(remark, f"Mean ± sample standard deviation over {raw.repetitions}")
    samples = {job.evaluation["samples"] for job in raw.jobs}
    if raw.accuracy and len(samples) == 1:
        [count] = samples
        template = "The test split has {} samples: one sample corresponds to {} of accuracy"
        audit.says(remark, template, count, 1 / count)


def check_samples(audit: Audit, raw: Trainings) -> None:
    """Compare the pictures of generated samples with the files of the first training of each run."""
    drawn = [jobs for jobs in raw.runs.values() if (jobs[0].folder / "samples.png").exists()]
    for picture, jobs in zip(audit.page.all("img", "samples"), drawn, strict=True):
        source = picture.attributes["src"]
        content = b64decode(source.value.removeprefix("data:image/png;base64,"))
        audit.require(content == (jobs[0].folder / "samples.png").read_bytes(), picture, "samples.png")
        source.explain()
