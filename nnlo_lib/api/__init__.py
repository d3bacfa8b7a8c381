"""The public Python API: the functions that `import nnlo_lib` offers."""
