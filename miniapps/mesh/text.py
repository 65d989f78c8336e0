"""English text as bytes: the help topics in Python's standard library (`pydoc_data.topics`), cut into windows.

A window has `tokens` + 1 bytes, since the model predicts each byte from the bytes before it. Windows do not overlap;
every tenth is for tests.
"""

import hashlib

import numpy as np

VOCABULARY = 256  # bytes; 0 does not occur in the text and stands for a masked byte
EVERY = 10


def topics() -> bytes:
    """The topics in the order of their names, about 465 kB; another version of Python may have others, which `digest`
    distinguishes."""
    from pydoc_data.topics import topics as by_name

    return "\n".join(by_name[name] for name in sorted(by_name)).encode()


def windows(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(windows for training, windows for tests), uint8 (n, tokens + 1)."""
    text = np.frombuffer(topics(), np.uint8)
    count = len(text) // (tokens + 1)
    cut = text[: count * (tokens + 1)].reshape(count, tokens + 1)
    test = np.arange(count) % EVERY == EVERY - 1
    return cut[~test], cut[test]


def digest() -> bytes:
    """The first 16 bytes of the SHA-256 of the text."""
    return hashlib.sha256(topics()).digest()[:16]
