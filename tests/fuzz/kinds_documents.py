"""Single files that a user names: documents of JSON, texts, and arrays of numbers."""

from __future__ import annotations

import functools
import json
import random
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from kernels.allreduce import links as allreduce_links
from kernels.commands import sums
from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.reductions import files
from miniapps.trace.published import read_published
from miniapps.untrusted import Refused
from miniapps.untrusted.schedule import read_schedule
from miniapps.untrusted.text import tell
from tests.analysis.answers_runs import schedule
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.forge import craft_any
from tests.fuzz.kinds_inputs import _text
from tests.fuzz.sandbox import Sandbox, fresh

PUBLISHED = "".join(f"CHAIN step={step} head={step:064x}\n" for step in range(1, 9))


def _linked(box: Sandbox) -> str:
    links = allreduce_links.Links(((0.0, 2.0, 1.0), (2.0, 0.0, 2.0), (1.0, 2.0, 0.0)))
    path = box.runs / "given.json"
    allreduce_links.write(str(path), allreduce_links.Linked(links, None))
    return path.read_text()


# Of each document: an example, and what reads it.
DOCUMENTS: dict[str, tuple[Callable[[Sandbox], str], Callable[[Path], object]]] = {
    "schedule": (lambda box: json.dumps(schedule(0.3, 0.3, 0.4)), read_schedule),
    "links": (_linked, lambda path: (allreduce_links.read(str(path)), allreduce_links.read_plain(str(path)))),
    "published": (lambda box: PUBLISHED, read_published),
}


def document(rng: random.Random, base: Base) -> str:
    """A document is none, or says what there is not: it is read, or refused by a sentence."""
    box = fresh(base.case)
    name = rng.choice(list(DOCUMENTS))
    example, reads = DOCUMENTS[name]
    text = example(box)
    how = rng.random()
    if name != "published" and how < 0.5:
        content = json.loads(text)
        for _ in range(rng.choice((1, 1, 2))):
            content = mutate.value(rng, content)
        if name == "links" and isinstance(content, dict) and rng.random() < 0.5:
            content = {key: value for key, value in content.items() if key != "digest"}
            content["digest"] = allreduce_links.digest_of(content)
        path = box.runs / "document"
        path.write_text(json.dumps(content))
        box.note(f"{name}: {path.read_text()[:400]}")
    elif how < 0.6:
        path = box.runs / "document"
        path.write_bytes(rng.choice((b"[" + b"[]," * 2**22 + b"[]]", b"\n" * 2**25, b'{"":' * 10**5, b"," * 2**24,
                                     b'["' + b'","' * 2**22 + b'"]', "\U0001f600".encode() * 2**22)))  # fmt: skip
        box.note(f"{name}: {path.stat().st_size} bytes of little")
    else:
        path = _text(rng, box, "document", text)
    with box.watched():
        return "damaged" if box.say(lambda: _read(lambda: reads(path))).code else "free"


def numbers(rng: random.Random, base: Base) -> str:
    """A file of numbers to be added: an array of NumPy, or a dataset of HDF5."""
    box = fresh(base.case)
    outside = base.put_outside(box)
    path = box.runs / rng.choice(("x.npy", "x.h5"))
    given = np.random.default_rng(rng.randrange(2**31)).standard_normal((3, 40))
    if path.suffix == ".npy":
        np.save(path, given)
        name = str(path)
    else:
        with h5py.File(path, "w", userblock_size=512) as file:
            how = rng.choice(
                ({}, {"chunks": True}, {"compression": "gzip"}, {"shuffle": True, "compression": "gzip"})
            )
            file.create_dataset("group/x", data=given, **how)
            file.create_dataset("y", data=given[0])
        name = f"{path}:/{rng.choice(('group/x', 'y', 'group', 'nothing'))}"
    if path.suffix == ".h5" and rng.random() < 0.3:
        box.note(_forged_chunk(rng, path))
    elif path.suffix == ".h5" and rng.random() < 0.7:
        box.note(craft_any(rng, path, outside))
    else:
        box.note(mutate.damage(rng, path))

    def read() -> None:
        count, length = files.extent(name, np.dtype("f8"), 1)
        if length > 10**7:  # as large as it says is the machine's affair
            return
        files.read(name, np.dtype("f8"), count - 1, _Whole(length), [np.empty(length)])

    def added() -> None:
        if path.suffix == ".npy":
            sums._read(str(path))

    with box.watched():
        return "damaged" if box.say(lambda: max(_read(read), _read(added))).code else "free"


@functools.cache
def _bomb() -> bytes:
    """Half a megabyte that unpacks to half a gigabyte of zeros."""
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(2**24)) for _ in range(32)), packer.flush()])


def _forged_chunk(rng: random.Random, path: Path) -> str:
    """Put a chunk that no packer made of its numbers into a packed dataset of `path`; says which."""
    data = np.arange(120.0).reshape(3, 40)
    with h5py.File(path, "r+") as file:
        del file["group/x"]
        x = file.create_dataset("group/x", (3, 40), "f8", chunks=(2, 16), compression="gzip", shuffle=True)
        x[: rng.choice((0, 1, 3))] = data[:1]
        good = zlib.compress(bytes(range(256)))
        forged = rng.choice((_bomb(), _bomb()[:4000], b"x", good, good + good, good[:-1], bytes(256), bytes(10**6),
                             zlib.compress(bytes(255)), zlib.compress(bytes(257)), rng.randbytes(300)))  # fmt: skip
        at, mask = (rng.choice((0, 2)), rng.choice((0, 16, 32))), rng.choice((0, 0, 0, 1, 2, 3, 2**32 - 1))
        x.id.write_direct_chunk(at, forged, filter_mask=mask)
    return f"chunk {at} of {len(forged)} bytes, mask {mask}"


class _Whole:
    """All numbers as one block."""

    def __init__(self, length: int):
        self.own, self.cuts, self.block = np.array([0]), [(0, length)], length


def _read(question: Callable[[], object]) -> int:
    try:
        question()
    except (Refused, UsageError, ChoiceError, OSError, ValueError) as error:
        tell(str(error), sys.stderr)
        return 2
    return 0
