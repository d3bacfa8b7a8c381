"""Which published results of an experiment are complete and up to date."""
