"""Defines and reads, by schema, the lines of journals, locks and the register of submissions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from miniapps.untrusted.records import LINE_MOST, conform, decode, read_json
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

MOST = 2**25  # bytes of a journal or register; an attempt takes some 700
LOCK_MOST = 2**16  # bytes of a lock
NAMED = 5  # wrong lines of one file that are named; of the others only the number is given
WRONG_MOST = 1000  # a file with more unknown or truncated lines is no journal

Outcome = Literal["done", "check failed", "failed", "interrupted"]
DONE: Final = "done"
CHECK_FAILED: Final = "check failed"
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"

Short = Annotated[str, Meta(min_length=1, max_length=255)]
Word = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
# The id that a batch system gives: it becomes a part of commands, directives and file names.
Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.\[\]@-]{0,199}\Z")]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a process, distinct also from a later process with the same pid; None: not known."""

    host: Short
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    start: Annotated[int, Meta(ge=0, le=2**62)] | None = None  # clock ticks from the boot
    boot: Word | None = None  # id of the boot
    namespace: Word | None = None  # of the pid


class Lock(Process, frozen=True, kw_only=True):
    """The process that runs an allocation; `start_of_job` is jobs.allocation.own_start of its batch job."""

    since: Word
    start_of_job: Word = ""


class Begin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The beginning of an attempt. A second entry, with `process`, follows when the launch has started."""

    task: Short
    attempt: Count
    at: Word
    host: Word = ""
    allocation_id: Word = ""
    process: Process | None = None


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an attempt."""

    task: Short
    attempt: Count
    at: Word
    outcome: Outcome
    reason: str
    code: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    seconds: Seconds | None = None
    moved: Annotated[str, Meta(pattern=r"\A(failed/[^/\0]{3,255})?\Z")] = ""  # from the campaign's directory


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the register. `id` is the scheduler's id; `after` is the job whose end this job waits for."""

    id: Id
    name: Short
    site: Short
    scheduler: Annotated[str, Meta(pattern=r"\A(slurm|pbs)\Z")]
    script: str
    node_hours: Annotated[float, Meta(ge=0)]
    elements: Count
    after: Id | None
    time: Word


def read_journal(path: Path) -> tuple[list[Begin | End], list[str]]:
    """(entries of the journal `path`, sentences on the lines that are not valid).

    A line that a kill or a full disk truncated is ignored. Raises Refused for anything but a regular file of at most
    MOST bytes and WRONG_MOST wrong lines, OSError.
    """
    entries: list[Begin | End] = []
    doubts: list[str] = []
    wrong = cut = 0
    for where, line in _lines(path):
        try:
            entries.append(_entry(line, where))
            continue
        except Refused as error:
            reason = f"not believed: {error}"
        if cut_off(line):
            cut += 1
        else:
            wrong += 1
            doubts += [reason] * (wrong <= NAMED)
        if wrong + cut > WRONG_MOST:
            raise Refused(
                f"{where}: the {WRONG_MOST + 1}st line that is no record of jobs; this is no journal: move it away"
            )
    if wrong > NAMED:
        doubts.append(f"not believed: {wrong - NAMED} more lines of {printable(str(path))}")
    return entries, doubts


def read_register(path: Path) -> list[Submission]:
    """All entries of the register `path`. Raises Refused, which names the line, OSError."""
    return [_decoded(line, Submission, where) for where, line in _lines(path)]


def read_lock(path: Path) -> Lock:
    """The lock in the file `path`. Raises Refused, OSError."""
    return read_json(path, Lock, LOCK_MOST)


def cut_off(line: bytes) -> bool:
    """True if `line` is a truncated record: the beginning of a JSON object without its end."""
    if not line.startswith(b"{") or line.endswith(b"}") or not line.isascii():
        return False
    return any("truncated" in _wrong(line + digit) for digit in (b"", b"0"))  # 2. and 1e- are no numbers yet


def _wrong(text: bytes) -> str:
    """The error of msgspec for JSON `text`; "" where `text` is valid."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return ""


def _entry(line: bytes, where: str) -> Begin | End:
    values = _decoded(line, dict[str, Any], where)
    return conform(values, End, where) if "outcome" in values else conform(values, Begin, where)


def _decoded(line: bytes, schema: Any, where: str) -> Any:
    if len(line) > LINE_MOST:
        raise Refused(f"{where}: {len(line):,} bytes in one line, and at most {LINE_MOST:,} are read")
    return decode(line, schema, where)


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields ("PATH, line N", line) for every line that is not empty."""
    shown = printable(str(path))
    for number, line in enumerate(io.BytesIO(read_bytes(path, MOST)), start=1):
        if stripped := line.rstrip(b"\n"):
            yield f"{shown}, line {number}", stripped
