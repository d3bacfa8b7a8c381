"""Tell what a search has found: a table of its trials, or its best as a run to be trained."""

import argparse
import sys
from pathlib import Path

from nnlo_lib.errors import reported


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="results/<experiment>/search")
    parser.add_argument("--table", type=Path, help="trials.csv")
    parser.add_argument("--config", type=Path, help="of the best as a run; best.yaml is written, too")
    options = parser.parse_args()

    from nnlo_lib.search.record import read_record
    from nnlo_lib.tune.best import write_outcome
    from nnlo_lib.tune.dag_plan import SearchPlan
    from nnlo_lib.tune.table import write_table

    record = read_record(options.folder)
    if options.table:
        write_table(options.table, record)
    if options.config:
        write_outcome(options.folder)
        options.config.write_text(SearchPlan(record.experiment, True).resolved_best())


if __name__ == "__main__":
    sys.exit(reported(main)())
