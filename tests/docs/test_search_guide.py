"""Statements of docs/guides/search.md agree with the code."""

import re
from pathlib import Path

import yaml

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.search.space.skopt_dimensions import read_model_space

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/guides/search.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def test_a_search_takes_five_lines():
    assert len(EXAMPLES[0].splitlines()) == 5


def test_nnlos_form_is_read(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "net.py").write_text(f"from skopt.space import Integer, Real\n{code}")
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment(_written(tmp_path, {"model": {"name": "net.py:get_model"}, "search": {}}))
    assert list(read_model_space(experiment.model)) == ["model.args.filters", "model.args.dropout"]


def _written(folder, settings):
    (folder / "mine.yaml").write_text(yaml.safe_dump(settings))
    return folder / "mine.yaml"
