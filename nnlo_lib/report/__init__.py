"""The HTML report and the summary tables of finished runs and searches."""
