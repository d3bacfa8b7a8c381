"""The GPUs that a process may use: what CUDA_VISIBLE_DEVICES shows, or what the scheduler has allocated."""

import os

# GPUs by torch's numbers; torch may have read CUDA_VISIBLE_DEVICES before the subset is chosen.
GPU_SUBSET = "NNLO_GPUS"


def visible_gpus() -> list[int]:
    """Return the GPUs that this process may use, by torch's numbers.

    The GPUs in CUDA_VISIBLE_DEVICES are used or, if it is not set, the GPUs that Slurm has allocated, or all. A
    search that runs several trainings in parallel restricts them further with GPU_SUBSET (NNLO_GPUS).
    """
    visible = _allocated_gpus()
    mine = [int(gpu) for gpu in os.environ.get(GPU_SUBSET, "").split(",") if gpu]
    return [gpu for gpu in visible if gpu in mine] if mine else visible


def _allocated_gpus() -> list[int]:
    import torch  # only here: a process that starts CPU trainings does not need it

    # Without NVML, the count may initialize the driver, but it makes no context on a GPU.
    visible, environment = list(range(torch.cuda.device_count())), os.environ
    if "CUDA_VISIBLE_DEVICES" in environment:
        return visible
    allocated = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    named = [int(word) for word in allocated.split(",") if word.isdigit()]
    # Slurm numbers the GPUs of the whole host. If cgroups hide the other GPUs, torch counts the visible ones
    # from 0.
    if named and len(named) < len(visible):
        return [gpu for gpu in named if gpu in visible]
    return visible[: int(environment.get("SLURM_GPUS_ON_NODE") or len(visible))]
