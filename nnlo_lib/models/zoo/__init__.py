"""Named networks, a file for each family.

Every builder takes `shape`, the shape of a sample (of images: channels, height, width), and `classes`, the number of
outputs; further arguments are `model.args` of the experiment.
"""
