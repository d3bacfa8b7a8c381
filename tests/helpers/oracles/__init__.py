"""Independent references in float64 of optimizers, schedules, losses and metrics; docs/reference/oracles.md lists them."""
