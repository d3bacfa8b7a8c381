"""Who proposes what to try next: each a pure function of the settings, the trial's number, and what is known."""
