"""Many damaged inputs in one case: files with hashes or a schema, straight to the function that reads them.

What it returns is what the undamaged file holds, or it refuses; a file whose only protection is its schema may say
something else.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.programs import rawlog
from miniapps.trace import TraceError, read
from miniapps.untrusted import Refused, sealed
from miniapps.untrusted.certificate import read_certificate
from miniapps.untrusted.result import read_result
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.kinds_documents import DOCUMENTS
from tests.fuzz.kinds_records import RANKS, TEXTS
from tests.fuzz.sandbox import Violation, fresh
from tests.miniapps.raw_logs import mixed, write_raw

DRAWS = 50  # of one case
EXPECTED = (Refused, TraceError, UsageError, ChoiceError, OSError, ValueError)


def readers(rng: random.Random, base: Base) -> str:
    """Draw damage of one file, again and again, and read it."""
    box = fresh(base.case)
    name = rng.choice(list(READERS))
    make, reads, protected = READERS[name]
    given = make(base, box.runs)
    content = given.read_bytes()
    target = given
    if name == "raw" and rng.random() < 0.5:
        target = given.with_suffix(".txt")
        content = target.read_bytes()
    good, refused, box.inputs = reads(given), 0, DRAWS
    with box.watched(lambda path: True):
        for _ in range(DRAWS):
            how = rng.choice(mutate.BYTES)
            changed = how(rng, content)
            target.write_bytes(changed)
            try:
                found = reads(given)
            except EXPECTED as error:
                refused += 1
                if not str(error):
                    raise Violation(f"{name}, {how.__name__}: refused without a word") from error
                continue
            if protected and found != good:
                raise Violation(f"{name}, {how.__name__}: other content is believed")
    box.note(f"{name}: {refused} of {DRAWS} refused")
    return "damaged" if refused else "same"


def _raw(base: Base, place: Path) -> Path:
    unseen = [3, 4] + [0] * (rawlog.MOST_COUNTED - 2)
    ended = len(list(base.runs.iterdir())) % 2 * 9
    return write_raw(place / "raw-00001.log", mixed(), ended, texts=TEXTS, rank=1, size=RANKS, unseen=unseen)


def _read_raw(path: Path) -> Any:
    log = rawlog.read(path)
    return (log.rank, log.size, log.began, log.ended, log.offset, log.records.tobytes(), log.places.by_number,
            log.types, log.operations, log.communicators, log.files, log.unseen, log.unseen_of_all, log.command,
            log.guarantee)  # fmt: skip


def _read_trace(path: Path) -> Any:
    trace = read(path)
    columns = [column.tobytes() for table in trace.tables.values() for column in table.values()]
    return repr(trace.attributes), trace.names, trace.complete, columns


def _of_run(run: str, name: str) -> Callable[[Base, Path], Path]:
    def make(base: Base, place: Path) -> Path:
        path = place / name
        path.write_bytes((base.runs / run / name).read_bytes())
        return path

    return make


def _document(name: str) -> Callable[[Base, Path], Path]:
    def make(base: Base, place: Path) -> Path:
        class Box:
            runs = place

        path = place / "document"
        path.write_text(DOCUMENTS[name][0](Box))  # type: ignore[arg-type]
        return path

    return make


@functools.cache
def _solution() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.h5")
        sealed.write_sealed(path, lambda file: file.create_dataset("x", data=np.arange(100.0)))
        return path.read_bytes()


def _sealed(base: Base, place: Path) -> Path:
    path = place / "x.h5"
    path.write_bytes(_solution())
    return path


# Of each: what makes a good file in a directory, what reads it, and whether hashes tell every change.
READERS: dict[str, tuple[Callable[[Base, Path], Path], Callable[[Path], Any], bool]] = {
    "raw": (_raw, _read_raw, True),
    "trace": (_of_run("a", "rank-00000.h5"), _read_trace, True),
    "node": (_of_run("n", "node-00000.h5"), lambda path: sealed.read_sealed(path), True),
    "result": (_of_run("a", "result.json"), lambda path: read_result(path.parent), True),
    "certificate": (
        _of_run("audit", "certificate.json"),
        lambda path: json.dumps(repr(read_certificate(path))),
        True,
    ),
    "sealed": (_sealed, lambda path: sealed.read_sealed(path), True),
    **{name: (_document(name), DOCUMENTS[name][1], name == "links") for name in DOCUMENTS},
}
