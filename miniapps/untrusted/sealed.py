"""HDF5 files with a seal: a hash of all their bytes, checked before the HDF5 library reads one of them.

A single wrong byte can crash the library, hang it or make it allocate endless memory. So the first 512 bytes of a file,
the user block that HDF5 leaves to applications, hold a line of text. It says whether the file is finished, and gives
its length and hash:

    fpna-file 1 open
    fpna-file 1 closed xxh3-128=0123456789abcdef0123456789abcdef bytes=26624

XXH3 detects damage; it does not protect against forgery.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from miniapps.untrusted.regular import MOST, Refused, open_regular, require_dense
from miniapps.untrusted.text import printable

HEADER = 512  # bytes of the user block
PIECE = 2**22  # bytes hashed at once
_MAGIC = b"fpna-file 1 "
_HDF5 = b"\x89HDF\r\n\x1a\n"  # the beginning of an HDF5 file without a user block
OPEN = _MAGIC + b"open"
_CLOSED = re.compile(re.escape(_MAGIC) + rb"closed xxh3-128=([0-9a-f]{32}) bytes=([0-9]{1,18})")


def header(text: bytes = OPEN) -> bytes:
    """The user block with the line `text`."""
    return text + b"\n" + b"\0" * (HEADER - len(text) - 1)


def seal(file: BinaryIO) -> str:
    """Write the seal into the header of the finished `file`, open for reading and writing; returns the hash in hex."""
    file.seek(HEADER)
    hasher = xxhash.xxh3_128()
    while piece := file.read(PIECE):
        hasher.update(piece)
    digest = hasher.hexdigest()
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    file.write(header(OPEN[: len(_MAGIC)] + f"closed xxh3-128={digest} bytes={size}".encode()))
    return digest


def sealed(image: bytes, where: str) -> str:
    """The hash, in hex, of the finished file whose bytes are `image`; "" for a file that was never finished.

    Raises Refused if the header is missing, or if length or hash differ from the seal.
    """
    text = bytes(image[:HEADER]).split(b"\n")[0]
    if image[:HEADER] == header() and len(image) > HEADER:
        return ""
    match = _CLOSED.fullmatch(text)
    if match is None or image[:HEADER] != header(text):
        raise _not_ours(where)
    digest, size = match[1].decode(), int(match[2])
    if size != len(image):
        raise Refused(
            f"{where}: damaged: it has {len(image):,} bytes of {size:,}; copy it again from where the run wrote it, or "
            "leave this run out"
        )
    if xxhash.xxh3_128_hexdigest(memoryview(image)[HEADER:]) != digest:
        raise Refused(
            f"{where}: damaged: its bytes have another hash than its seal states; copy it again from where the run "
            "wrote it, or leave this run out"
        )
    return digest


def read_sealed(path: str | os.PathLike, most: int = MOST, links: bool = False) -> tuple[bytes, str]:
    """(bytes, hash in hex) of the finished file `path` of at most `most` bytes; `links` as for `open_regular`.

    Reads only the beginning of a file without a seal. Raises Refused, also for a file that was never finished, and
    OSError.
    """
    where = printable(os.fspath(path))
    with open_regular(path, most, links) as file:
        begin = file.read(len(_MAGIC))
        if begin.startswith(_HDF5):
            raise Refused(
                f"{where}: an HDF5 file without a seal, such as a checkpoint of schema 1: it cannot be verified; write "
                "it again with this version"
            )
        if begin != _MAGIC:
            raise _not_ours(where)
        require_dense(file, path)
        file.seek(0)
        image = file.read(os.fstat(file.fileno()).st_size)
    digest = sealed(image, where)
    if not digest:
        raise Refused(f"{where}: was never finished; the program that wrote it was stopped: leave it out")
    return image, digest


def write_sealed(path: Path, fill: Callable[[Any], None]) -> str:
    """Write the new HDF5 file `path`, which `fill(h5py.File)` fills, sealed; returns the hash in hex.

    Writes under another name in the same directory and renames, so `path` is complete or unchanged. Raises OSError.
    """
    import h5py

    draft = path.with_name(f"{path.name}.partial")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()  # left by a run that was killed; removes a link without following it
    try:
        with open(draft, "x+b") as raw:
            with h5py.File(raw, "w", userblock_size=HEADER) as file:
                fill(file)
            digest = seal(raw)
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return digest


def _not_ours(where: str) -> Refused:
    return Refused(
        f"{where}: damaged, or not written by this suite: it does not begin with the line `fpna-file 1 ...`; copy it "
        "again from where the run wrote it, or leave this run out"
    )
