"""English text as bytes: the help topics that every Python brings (`pydoc_data.topics`), cut into windows.

A window has `tokens` + 1 bytes, for each byte is to be told from those before it; windows do not overlap. Every tenth
is for tests.
"""

import hashlib

import numpy as np

VOCABULARY = 256  # bytes; 0 does not occur, and stands for a masked one
EVERY = 10


def topics() -> bytes:
    """The topics in the order of their names, some 465 kB; another Python may have others, as its hash tells."""
    from pydoc_data.topics import topics as by_name

    return "\n".join(by_name[name] for name in sorted(by_name)).encode()


def windows(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(to learn from, to test), uint8 (n, tokens + 1)."""
    text = np.frombuffer(topics(), np.uint8)
    count = len(text) // (tokens + 1)
    cut = text[: count * (tokens + 1)].reshape(count, tokens + 1)
    test = np.arange(count) % EVERY == EVERY - 1
    return cut[~test], cut[test]


def digest() -> bytes:
    """The first 16 bytes of the SHA-256 of the text."""
    return hashlib.sha256(topics()).digest()[:16]
