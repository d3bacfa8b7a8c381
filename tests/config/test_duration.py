"""Times in an experiment file: read as people write them, or refused with how to write them."""

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

DAY = 24 * 60


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("90", 90), ("'90m'", 90), ("2h", 120), ("1h30m", 90), ("'1h 30min'", 90), ("1d", DAY), ("90s", 2), ("0.5h", 30),
        # YAML 1.1 reads the next three as numbers in base 60, 010 as 8.
        ("24:00:00", DAY), ("1:30:00", 90), ("12:00:30", 721), ("01:30:00", 90), ("1-12:00:00", 36 * 60), ("'24:00:00'", DAY), ("010", 10),
    ],
)  # fmt: skip
def test_a_time_limit_is_read_the_same_in_a_file_and_on_the_command_line(tmp_path, written, minutes):
    file = tmp_path / "x.yaml"
    file.write_text(f"name: x\nresources: {{runtime: {written}}}\n")
    assert load_experiment(file).resources.runtime == minutes
    file.write_text("name: x\n")
    assert load_experiment(file, [f"resources.runtime={written}"]).resources.runtime == minutes


@pytest.mark.parametrize("written", ["90:00", "1:90:00", "2 hours", "h", "'0m'", "-5", "'-2h'"])
def test_another_time_limit_is_refused(tmp_path, written):
    (tmp_path / "x.yaml").write_text(f"name: x\nresources: {{runtime: {written}}}\n")
    with pytest.raises(UserError, match=r"resources\.runtime"):
        load_experiment(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("written", "hours"), [("24:00:00", 24), ("90m", 1.5), ("0.5", 0.5), ("2-00:00:00", 48)]
)
def test_the_hours_of_a_budget(tmp_path, written, hours):
    search = f"{{space: {{train.optimizer.lr: {{log_uniform: [1e-4, 1e-1]}}}}, budget: {{hours: {written}}}}}"
    (tmp_path / "x.yaml").write_text(f"name: x\nsearch: {search}\n")
    assert load_experiment(tmp_path / "x.yaml").search.budget.hours == hours
