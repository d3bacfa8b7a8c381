"""Files below `state/` of a run: lease, attempts, tables, sample ledger, log."""
