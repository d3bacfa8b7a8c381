"""The page of the classes that a user extends or is given: their signatures and docstrings, read from the source.

`python docs/interfaces_page.py` writes the part of the page between its two markers; the rest is written by hand.
"""

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/develop/extend/interfaces.md"
BEGIN = "<!-- From here on written by `make docs` from nnlo_lib/: edit there. -->\n"
END = "<!-- Up to here written by `make docs`. -->\n"
# Classes and functions by file, by what a user extends; the class to extend comes first.
INTERFACES = {
    "Algorithms": {
        "algorithms/base.py": "Algorithm ReplicaView SampleShare",
        "comm/communicator.py": "Communicator Request",
        "algorithms/neighbor_exchange.py": "AlgorithmContext NeighborExchange NeighborVectors",
        "config/algorithm_base.py": "Capabilities",
    },
    "Compressors": {"comm/compression/base.py": "Compressor ErrorFeedback compressed_allreduce generator"},
    "Problems": {"problems/base.py": "Problem BatchLoss"},
    "Samplers": {
        "search/samplers/base.py": "Sampler Observations sampling_rng random_points",
        "search/space/space.py": "SearchSpace",
    },
    "Pruners": {"search/pruners.py": "Pruner", "search/study/snapshot.py": "StudySnapshot"},
    "Readers": {"data/readers/base.py": "contents_of_arrays DatasetContents ConversionUnit SampleBlock"},
}
# Of these classes, a user needs these members; NNLO itself needs the others.
MEMBERS = {
    "Communicator": "rank size barrier broadcast allreduce iallreduce part reduce_scatter allgather exchange send receive probe iprobe gather "
    "split now outside_of_time",
    "SearchSpace": "free size sample points point_at unit_row encode decode",
    "StudySnapshot": "epochs trials top is_complete has_failed mean_value final_value",
}


def interfaces_page(current: str) -> str:
    """Return the page: what is written by hand in `current`, and the sections of the classes."""
    before, _, after = current.partition(BEGIN)
    return f"{before}{BEGIN}\n" + "\n".join(_sections()) + f"\n{END}{after.partition(END)[2]}"


def _sections() -> Iterator[str]:
    for role, files in INTERFACES.items():
        yield f"## {role}\n"
        places = [(file, name) for file, names in files.items() for name in names.split()]
        for file, name in places:
            source = (ROOT / "nnlo_lib" / file).read_text(encoding="utf-8")
            kinds = ast.ClassDef | ast.FunctionDef
            found = next(
                each for each in ast.parse(source).body if isinstance(each, kinds) and each.name == name
            )
            yield f"### `{name}`\n"
            if isinstance(found, ast.FunctionDef):
                yield f"{_method(found)}\n"
            else:
                yield from _class(found, source.splitlines(), is_extended=(file, name) == places[0])


def _class(found: ast.ClassDef, lines: list[str], is_extended: bool) -> Iterator[str]:
    text, _, attributes = (ast.get_docstring(found) or "").partition("\n\nAttributes:\n")
    for paragraph in text.split("\n\n"):
        is_formula = paragraph.startswith("    ")
        yield f"```text\n{cleandoc(paragraph)}\n```\n" if is_formula else f"{paragraph}\n"
    described = dict(re.findall(r"^    (\w+): ((?:.|\n {5,})+)", attributes, re.MULTILINE))
    for node in found.body:
        match node:
            case ast.FunctionDef(key):
                words = _method(node)
            case ast.AnnAssign(target=ast.Name(key)) | ast.Assign(targets=[ast.Name(key)]):
                field = ast.unparse(node).partition(" = field")[0]
                words = f"`{field}`: {described.get(key) or _comment(lines, node.lineno - 1)}"
            case _:
                continue
        is_shown = key in MEMBERS[found.name].split() if found.name in MEMBERS else key[0] != "_"
        if is_shown or key == "__call__":
            is_required = is_extended and "@abstractmethod" in ast.unparse(node)
            yield f"* {' '.join(words.split())}{' *Required.*' * is_required}"
    yield ""


def _method(node: ast.FunctionDef) -> str:
    """Return signature and docstring."""
    node.args.args = [each for each in node.args.args if each.arg not in ("self", "cls")]
    is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
    given = "" if is_property else f"({ast.unparse(node.args)})".replace("=", " = ")
    returned = ast.unparse(node.returns).strip("'") if node.returns else "None"
    signature = node.name + given + f" -> {returned}" * (returned != "None")
    return f"`{signature}`: {' '.join((ast.get_docstring(node) or '').split())}"


def _comment(lines: list[str], place: int) -> str:
    """Return the comment of a field: at the end of its line, or in the lines above."""
    _, _, beside = lines[place].partition("  # ")
    above = takewhile(re.compile(" +# ").match, reversed(lines[:place]))
    return beside or " ".join(line.strip(" #") for line in reversed([*above]))


if __name__ == "__main__":
    PAGE.write_text(interfaces_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
