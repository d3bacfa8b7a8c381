"""Sizes as text."""


def size_text(count: float) -> str:
    """Return a number of bytes with a decimal unit, such as 12.3 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"
