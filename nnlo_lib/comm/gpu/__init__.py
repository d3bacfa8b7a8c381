"""Reductions of vectors on GPUs: NCCL and CUDA-aware MPI."""
