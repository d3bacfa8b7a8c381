"""Commands of `nnlo`: of each, its help text, its options and the function that runs it."""
