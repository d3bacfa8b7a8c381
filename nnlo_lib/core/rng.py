"""Seeds of independent random streams: one stream per (seed, purpose, rank, epoch, ...), no global stream."""

import hashlib


def derive_seed(seed: int, purpose: str, *coordinates: int) -> int:
    """Return the 63-bit seed of the stream for `purpose` at `coordinates`, a pure function of its arguments."""
    text = f"{seed}/{purpose}/{'/'.join(map(str, coordinates))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
