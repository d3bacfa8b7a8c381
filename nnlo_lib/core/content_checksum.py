"""Checksum of a JSON file's content, kept in the file: it shows a number that was changed by hand."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECKSUM_KEY = "content_sha256"


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum under CHECKSUM_KEY."""
    return {**content, CHECKSUM_KEY: content_checksum(content)}


def content_checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, independent of the order of keys; CHECKSUM_KEY is left out."""
    # As it will be read: JSON turns numbers that are keys into texts, which are sorted differently.
    stored = json.loads(json.dumps({key: content[key] for key in content if key != CHECKSUM_KEY}))
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
