"""Charts of the report as plain data for the templates."""
