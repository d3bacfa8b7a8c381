"""Points in time as text, as the records of a run contain them."""

from datetime import UTC, datetime


def timestamp(seconds: float | None = None) -> str:
    """Return a time in ISO 8601 with milliseconds, in UTC.

    Whole seconds would not do: an attempt that failed within one second would seem to end before its start.

    Args:
        seconds: seconds since 1970; None for now.
    """
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds")
