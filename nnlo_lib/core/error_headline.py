"""One line that tells the cause of an error, for tables, pages and progress lines."""

from collections.abc import Iterator

TRACEBACK_START = "Traceback (most recent call last):"
CUT = " [...] "
HEADLINE_CHARS = 1000  # in tables and pages; errors of Keras contain the whole model configuration
HEAD_SHARE = 0.3  # of the characters that are kept; the cause is more often at the end


def error_headline(text: str, limit: int = HEADLINE_CHARS) -> str:
    """Return an error as one line of at most `limit` characters.

    Of tracebacks, only the exception of the last one is kept, with its notes. The middle of a longer line is left out,
    because the beginning of an error tells its place and the end its cause.
    """
    first, found, _ = text.partition(TRACEBACK_START)
    if found:
        text = first + "\n".join(_after_frames(text.rpartition(TRACEBACK_START)[2]))
    return without_middle(_joined(text), limit)


def without_middle(text: str, limit: int) -> str:
    """Return the text, or its beginning and its end if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    kept = limit - len(CUT)
    head = int(HEAD_SHARE * kept)
    return f"{text[:head].rstrip()}{CUT}{text[len(text) - kept + head :].lstrip()}"


def _after_frames(trace: str) -> Iterator[str]:
    """Yield the lines that follow the frames of a traceback: the exception, its text and its notes."""
    lines = iter(trace.splitlines())
    for line in lines:
        if line and not line.startswith(" "):
            yield line
            break
    yield from lines


def _joined(text: str) -> str:
    """Return lines as one line; a semicolon separates lines that end without punctuation."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return (
        "".join(line + (" " if line[-1] in ".,:;({[" else "; ") for line in lines).rstrip().removesuffix(";")
    )
