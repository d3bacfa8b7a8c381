"""Check that each room of nnlo_lib, and the tests, stay within the lines that docs/develop/style.md gives them."""

import re

from helpers.source_tree import MODULES, PACKAGE, REPOSITORY

ROW = re.compile(r"^\| ([a-z +_]+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
TOP = "top"  # the modules that lie directly below nnlo_lib


def _budgets() -> dict[str, int]:
    section = (
        (REPOSITORY / "docs/develop/style.md").read_text().partition("## Budgets")[2].partition("\n## ")[0]
    )
    return {rooms: int(budget.replace(",", "")) for rooms, budget, _ in ROW.findall(section)}


def _lines_of_rooms() -> dict[str, int]:
    lines = dict.fromkeys([TOP], 0)
    for path in MODULES:
        room, *inner = path.relative_to(PACKAGE).parts
        key = room if inner else TOP
        lines[key] = lines.get(key, 0) + path.read_text().count("\n")
    return lines


def test_each_room_is_within_its_budget():
    lines = _lines_of_rooms()
    lines["tests"] = sum(path.read_text().count("\n") for path in (REPOSITORY / "tests").rglob("*.py"))
    budgets = _budgets()
    rooms = {room: row for row in budgets for room in row.split(" + ")}
    assert set(rooms) == set(lines), "each folder of nnlo_lib stands in one row of docs/develop/style.md"
    spent = {row: sum(lines[room] for room in row.split(" + ")) for row in budgets}
    over = {row: f"{spent[row]} lines, budget {budgets[row]}" for row in budgets if spent[row] > budgets[row]}
    assert over == {}
