"""Names of files and folders that hold no data: hidden files, and what file managers leave behind."""

LEFT_BY_FILE_MANAGERS = ("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir")


def is_visible(name: str) -> bool:
    """Return True if a file or folder of this name can hold data."""
    return not name.startswith(".") and name.lower() not in LEFT_BY_FILE_MANAGERS
