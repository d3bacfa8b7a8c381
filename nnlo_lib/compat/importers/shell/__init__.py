"""Parse commands as users start them: shell syntax, job headers, wrappers and launchers of ranks."""
