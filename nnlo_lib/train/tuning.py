"""Settings of the process that a training rank wants and a general program does not."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
LARGE = 1 << 30  # bytes
SET_TIMER_SLACK = 29  # Linux's prctl option
NANOSECONDS = 1000


def tune_process() -> None:
    """Keep freed memory, and nap no longer than asked. Other systems are left as they are.

    Activations of every step are as large as those of the last: handing them back to the kernel and faulting them in
    again costs time. Short naps end 50 microseconds late unless told otherwise.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(TRIM_THRESHOLD, LARGE)
        library.mallopt(MMAP_THRESHOLD, LARGE)
    if hasattr(library, "prctl"):
        library.prctl(SET_TIMER_SLACK, NANOSECONDS)
