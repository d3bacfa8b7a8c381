"""Networks of other packages by name, with random weights: timm and transformers, both optional."""
