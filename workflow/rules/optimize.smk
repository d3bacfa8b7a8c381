# Hyper-parameter search: room for it (the key `optimize` of the experiment is refused until it is there).
