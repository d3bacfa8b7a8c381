"""All that the page shows of a search."""

from pathlib import Path
from typing import Any

from nnlo_lib.report.search_data import SearchData
from nnlo_lib.report.search_effects import dependences, effects, how
from nnlo_lib.report.search_forest import forest
from nnlo_lib.report.search_keys import searched_keys
from nnlo_lib.report.search_lines import parallel_coordinates
from nnlo_lib.report.search_progress import convergence, learning, rungs
from nnlo_lib.report.search_tables import failures, folds, headline, trial_rows
from nnlo_lib.report.search_workers import sentence, workers


def search_section(folder: Path) -> dict[str, Any]:
    """Return what the template of a search draws. Raises UserError naming an input that cannot be used."""
    data = SearchData.load(folder)
    keys = searched_keys(data, data.worthy)
    fitted = forest(data, keys)
    ranked = [key for key, _ in fitted.ranked()] if fitted else keys
    headings, rows = trial_rows(data, searched_keys(data, data.rows))
    busy = workers(data)
    return {
        "title": data.record.experiment.name,
        "headline": headline(data),
        "folder": folder,
        "charts": [chart for chart in (*convergence(data), learning(data)) if chart],
        "stopped": any(row.state == "stopped" for row in data.worthy),
        "rungs": rungs(data),
        "coordinates": parallel_coordinates(data, ranked),
        "effects": effects(fitted),
        "how": how(data, fitted),
        "dependences": dependences(data, fitted),
        "folds": folds(data),
        "failures": failures(data),
        "workers": busy,
        "busy": sentence(busy) if busy else "",
        "headings": headings,
        "rows": rows,
        "several": data.record.search.folds.k,
    }
