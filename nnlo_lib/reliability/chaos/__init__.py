"""Train under random faults and compare with an undisturbed run."""
