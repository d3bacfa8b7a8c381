"""Recomputation of the section on reproducibility: settings, layers, facts and packages."""

import json
from collections.abc import Iterator
from datetime import datetime
from math import prod
from pathlib import Path
from typing import Any

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Job, Trainings, counted
from helpers.recomputation.tensors import parameter_shapes


def check_settings(audit: Audit, raw: Trainings) -> None:
    """Compare the experiment file, the commands and both tables of settings with the files."""
    section = audit.page.section("origin")
    audit.same(section.first("pre", "file"), "{}", raw.file.read_text())
    for small in section.all("h3")[1].all("small"):
        audit.require(
            Path(small.text).name == raw.file.name, small, f"the experiment file is {raw.file.name}"
        )
        small.children[0].explain()
    commit = raw.jobs[0].summary["code_version"].partition("(")[2].rstrip(")+")
    audit.says(section.first("pre", "commands"), f"git checkout {commit}")
    configs = [dict(_flat(jobs[0].summary["config"])) for jobs in raw.runs.values()]
    differing, every = _tables(section)
    keys = list(dict.fromkeys(key for config in configs for key in config))
    _check_table(audit, every, keys, configs)
    different = [key for key in keys if len({config.get(key, "–") for config in configs}) > 1]
    if differing:
        _check_table(audit, differing, different, configs)
    audit.require(bool(differing) == bool(different), section, f"settings {different} differ")


def _tables(section: Element) -> "tuple[Element | None, Element]":
    tables = section.all("table", "settings")
    return (tables[0] if len(tables) > 1 else None), tables[-1]


def _flat(config: dict[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else json.dumps(value)


def _check_table(audit: Audit, table: Element, keys: list[str], configs: list[dict[str, str]]) -> None:
    rows = table.first("tbody").all("tr")
    audit.require([row.first("th").text for row in rows] == keys, table, f"the keys are {keys}")
    for row, key in zip(rows, keys, strict=False):
        audit.same(row.first("th"), key)
        for cell, config in zip(row.all("td"), configs, strict=True):
            audit.same(cell, "{}", config.get(key, "–"))


def check_layers(audit: Audit, raw: Trainings) -> None:
    """Compare the parameters of each layer with the tensors of the saved model, and the FLOPs of dense layers."""
    for table in audit.page.section("origin").all("table", "layers"):
        job = job_of(table, raw)
        shapes = parameter_shapes(job.folder / "model.safetensors")
        for row in table.first("tbody").all("tr"):
            _check_layer(audit, row, shapes, job)
        audit.same(table.first("tfoot").all("td")[-1], "{}", sum(map(prod, shapes.values())))


def job_of(table: Element, raw: Trainings) -> Job:
    """Return the first training of a run with as many layers of the same names."""
    names = [row.first("th").text for row in table.first("tbody").all("tr")]
    return next(
        jobs[0]
        for jobs in raw.runs.values()
        if [each["name"] for each in jobs[0].summary["model"]["layers"]] == names
    )


def _check_layer(audit: Audit, row: Element, shapes: dict[str, tuple[int, ...]], job: Job) -> None:
    name = row.first("th").text
    audit.same(row.first("th"), name)
    layer = next(each for each in job.summary["model"]["layers"] if each["name"] == name)
    own = [shape for key, shape in shapes.items() if key.rpartition(".")[0] == name]
    weights = max(own, key=len, default=())
    kind, shape, drawn, settings, flops, parameters = row.all("td")
    audit.same(kind, layer["type"])
    audit.same(shape, " × ".join(map(str, layer["shape"])))
    audit.same(drawn, " × ".join(map(str, weights if len(weights) > 1 else ())))
    audit.same(settings, layer["settings"])
    audit.same(parameters, "{}", sum(map(prod, own)) or None)
    audit.same(flops, "{}", _flops(layer, weights))


def _flops(layer: dict[str, object], weights: tuple[int, ...]) -> "float | None":
    """Return the operations of a dense layer in closed form, of another layer as recorded."""
    return float(2 * prod(weights)) if layer["type"] == "Linear" else float(layer["flops"] or 0) or None


def check_facts(audit: Audit, raw: Trainings) -> None:
    """Compare code, hosts, times and packages with the summaries."""
    section, summaries = audit.page.section("origin"), [job.summary for job in raw.jobs]
    facts = {each.first("dt").text: each.first("dd") for each in section.first("dl").all("div")}
    audit.same(facts["hardware"], *hardware(summaries))
    for name, key in (("code", "code_version"), ("configuration", "config_hash")):
        audit.same(facts[name], ", ".join(dict.fromkeys(summary[key] for summary in summaries)))
    audit.same(
        facts["hosts"], ", ".join(dict.fromkeys(host for summary in summaries for host in summary["hosts"]))
    )
    start, end = min(each["started"] for each in summaries), max(each["finished"] for each in summaries)
    audit.same(facts["started"], start)
    took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    audit.same(facts["finished"], f"{end} ({{}} later)", float(took))
    _check_tasks(audit, facts["training tasks"], raw)
    _check_files(audit, facts.get("user's files"), raw)
    for item in section.first("ul", "packages").all("li"):
        name = item.children[0].value.strip()
        audit.same(
            item, f"{name} {{}}", ", ".join(dict.fromkeys(each["packages"][name] for each in summaries))
        )


def hardware(summaries: "list[dict[str, Any]]") -> "tuple[str, *tuple[Any, ...]]":
    """Return a template of the distinct hardware of the hosts, and its values."""
    every = [(name, each) for summary in summaries for name, each in summary["hardware"].items()]
    found = [each for number, each in enumerate(every) if each not in every[:number]]
    texts = [
        f"{name}: {host['cpu']}, {counted(host['threads'], 'thread')} of {counted(host['ranks'], 'rank')} on "
        f"{host['cores_available']} of {counted(host['cores'], 'core')}, {{}} memory"
        + "".join(f", {host['gpus'].count(gpu)} × {gpu}" for gpu in dict.fromkeys(host["gpus"]))
        for name, host in found
    ]
    return "; ".join(texts), *(float(host["memory_bytes"]) for _, host in found)


def _check_tasks(audit: Audit, fact: Element, raw: Trainings) -> None:
    ranks = [str(count) for count in sorted({job.summary["ranks"] for job in raw.jobs})]
    listed = " and ".join(filter(None, [", ".join(ranks[:-1]), ranks[-1]]))
    audit.same(fact, f"{{}}, with {listed} ranks", len(raw.jobs))


def _check_files(audit: Audit, fact: "Element | None", raw: Trainings) -> None:
    files = dict.fromkeys(
        (path, value) for job in raw.jobs for path, value in job.summary["input_files"].items()
    )
    audit.require(bool(fact) == bool(files), audit.page, f"user's files {list(files)}")
    for path, value in files if fact else ():
        audit.says(fact, f"{path} ({value[:8]}")
