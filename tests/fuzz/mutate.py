"""Random damage of bytes, of JSON values, and of lines of text."""

from __future__ import annotations

import copy
import os
import random
import shutil
from pathlib import Path
from typing import Any

ODD = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, 1e308, float("nan"),
    float("inf"), "", "x", "=1", "\x1b[31m\x07\r\n", "\ud800", "\u202e", "../../outside", "/etc/passwd", "a" * 100_000,
    [], {}, [[]], [None], {"": ""}, {"a": {"a": {"a": []}}}, [0] * 1000,
)  # fmt: skip


def flip(rng: random.Random, data: bytes) -> bytes:
    """One to eight bits are others."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def overwrite(rng: random.Random, data: bytes) -> bytes:
    """A range is zeros, ones or noise."""
    begin, end = _range(rng, len(data))
    fill = rng.choice((b"\0", b"\xff", None))
    return data[:begin] + (fill * (end - begin) if fill else rng.randbytes(end - begin)) + data[end:]


def truncate(rng: random.Random, data: bytes) -> bytes:
    """The end is missing, down to nothing."""
    return data[: rng.choice((0, rng.randrange(len(data) + 1), max(0, len(data) - rng.randrange(1, 64))))]


def extend(rng: random.Random, data: bytes) -> bytes:
    """More follows, of the file itself or noise."""
    more = rng.choice((b"\0" * rng.randrange(1, 4096), rng.randbytes(rng.randrange(1, 4096)), data))
    return data + more


def remove(rng: random.Random, data: bytes) -> bytes:
    """A range is left out."""
    begin, end = _range(rng, len(data))
    return data[:begin] + data[end:]


def swap(rng: random.Random, data: bytes) -> bytes:
    """Two blocks have changed places, as on a file system that lost its order."""
    size = rng.choice((16, 512, 4096))
    if len(data) < 2 * size:
        return flip(rng, data)
    i, j = sorted(rng.sample(range(len(data) // size), 2))
    a, b = data[i * size : (i + 1) * size], data[j * size : (j + 1) * size]
    return data[: i * size] + b + data[(i + 1) * size : j * size] + a + data[(j + 1) * size :]


BYTES = (flip, flip, overwrite, truncate, extend, remove, swap)


def damage(rng: random.Random, path: Path) -> str:
    """Damage the bytes of the file `path`; says how."""
    data = path.read_bytes()
    how = rng.choice(BYTES)
    path.write_bytes(how(rng, data))
    return f"{how.__name__} {path.name}"


def replace(rng: random.Random, path: Path, outside: Path) -> str:
    """Put something in the place of `path` that is no regular file, or a link to `outside`; says what."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    what = rng.choice(
        ("fifo", "directory", "link out", "link to itself", "device", "empty", "sparse", "dangling")
    )
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
        (path / "rank-00000.h5").touch()
    elif what == "link out":
        path.symlink_to(outside)
    elif what == "link to itself":
        path.symlink_to(path)
    elif what == "device":
        path.symlink_to(rng.choice(("/dev/zero", "/dev/random", "/dev/stdin", "/dev/tty")))
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(40 * 10**9)
    elif what == "dangling":
        path.symlink_to("/nonexistent/file")
    else:
        path.touch()
    return f"{what} for {path.name}"


def value(rng: random.Random, content: Any) -> Any:
    """`content`, of what JSON holds, with one value or key another."""
    places = list(_places(content))
    odd = copy.deepcopy(rng.choice(ODD))
    if not places:
        return odd
    holder, key = rng.choice(places)
    how = rng.random()
    if how < 0.6:
        holder[key] = odd
    elif how < 0.75:
        del holder[key]
    elif how < 0.9 and isinstance(holder, dict):
        holder[rng.choice(("", "path", "\x1b[1m", "x" * 5000, "__class__", "../x"))] = odd
    else:
        other, place = rng.choice(places)
        holder[key] = copy.deepcopy(other[place])
    return content


def lines(rng: random.Random, text: str) -> str:
    """`text` with a line left out, doubled, cut, moved, or made very long."""
    parts = text.splitlines(keepends=True) or [""]
    i = rng.randrange(len(parts))
    how = rng.randrange(6)
    if how == 0:
        del parts[i]
    elif how == 1:
        parts.insert(rng.randrange(len(parts) + 1), parts[i])
    elif how == 2:
        parts[i] = parts[i][: rng.randrange(len(parts[i]) + 1)]
    elif how == 3:
        rng.shuffle(parts)
    elif how == 4:
        at = rng.randrange(len(parts[i]) + 1)
        parts[i] = parts[i][:at] + rng.choice(("[" * 5000, "9" * 5000, "x" * 2**20, "\0", "\x1b[31m", "\ud800", "'" * 3,
                                               '"', "=", "\n[", "-", "1e999", "nan", "0x" + "f" * 300, "{", "}" * 70,
                                               "." * 3000, "\ufeff", "\r", "1979-05-27")) + parts[i][at:]  # fmt: skip
    else:
        words = parts[i].split(" ")
        words[rng.randrange(len(words))] = str(rng.choice(ODD))
        parts[i] = " ".join(words)
    return "".join(parts)


def _range(rng: random.Random, size: int) -> tuple[int, int]:
    begin = rng.randrange(size + 1)
    return begin, min(size, begin + rng.choice((1, 8, 64, 512, 4096, size)))


def _places(content: Any):
    if isinstance(content, dict):
        pairs = list(content.items())
    elif isinstance(content, list):
        pairs = list(enumerate(content))
    else:
        return
    for key, inner in pairs:
        yield content, key
        yield from _places(inner)
