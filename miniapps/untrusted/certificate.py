"""certificate.json: what an audit of operations tried and saw, with a hash of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kernels.torchops.verdicts import verdicts
from miniapps.untrusted import records
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.result import digest_of
from miniapps.untrusted.text import printable

CERTIFICATE = "certificate.json"
SCHEMA = 2
MOST = 64 * 2**20  # bytes: a case takes some 3 kB
STATEMENTS, CASES = 2**10, 2**13  # each is held against each; torch 2.13 has 48 statements, all cases are 789
Count = Annotated[int, Meta(ge=0, le=2**40)]
Name = Annotated[str, Meta(max_length=4096)]


class Change(msgspec.Struct):
    """What came of one change; metrics are of all distinct results against the first. `by`: distinct results by number
    of threads; `alone`: by the one pool whose threads were varied; `failed`: conditions under which a call failed;
    `skipped`: why parts of the result are not compared; `hint`: which arguments may have samples too."""

    trials: Count
    distinct: Annotated[int, Meta(ge=1, le=2**40)]
    bound: float | None = None
    v_c: float | None = None
    v_ermv: float | Literal["inf"] | None = None  # infinite where a result was 0
    ulp: float | None = None
    values: bool = False
    kinds: bool = False
    by: dict[Name, Count] = {}
    alone: dict[Name, Count] = {}
    failed: dict[Name, str] = {}
    skipped: dict[Name, str] = {}
    hint: str = ""


class Mode(msgspec.Struct):
    """What torch's deterministic mode did: `throws` its message, or runs and threads under it; `algorithm`: one call
    against one without the mode; `seconds`: median times of a call without and with the mode; `failed`: an error
    that is not of the mode."""

    seconds: tuple[float | None, float | None]
    throws: str | None = None
    failed: str | None = None
    runs: Change | None = None
    threads: Change | None = None
    algorithm: Change | None = None


class Elsewhere(msgspec.Struct):
    """CPU time of threads in no pool while a call ran, with one thread in each pool, packages that have such threads,
    and which pools could not be looked for."""

    seconds: float = 0.0
    packages: list[Name] = []
    lacking: str = ""


class Audit(msgspec.Struct):
    """What came of every change that belongs to a case. `pools`: the numbers of threads that each pool had; `skipped`:
    why parts of the result are not compared; `not_tried`: why changes are not there; `inputs`: hash of the inputs."""

    digest: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    runs: Change
    mode: Mode
    elements: Count = 0
    threads: Change | None = None
    batch: Change | None = None
    position: Change | None = None
    address: Change | None = None
    process: Change | None = None
    pools: dict[Name, list[Count]] = {}
    elsewhere: Elsewhere | None = None
    skipped: dict[Name, str] = {}
    not_tried: dict[Name, str] = {}
    inputs: str = ""


class Case(msgspec.Struct):
    """One case: `outcome` "done", or with an `error` "refused" (by torch), "nothing" (to compare), "crashed", "hung" or
    "slow"."""

    name: Name
    operation: Name
    direction: Name
    factors: dict[Name, Any]
    documented: list[Name]
    outcome: Name
    seconds: float
    audit: Audit | None = None
    error: str | None = None
    effects: dict[str, Any] | None = None


class Statement(msgspec.Struct):
    """An entry of torch's documentation."""

    operation: Name
    does: Name
    devices: list[Name]
    backward: bool
    keywords: dict[Name, list[str]]
    text: str


class Verdict(msgspec.Struct):
    """What became of a statement, or of an operation that differs and has none (`does` None)."""

    operation: Name
    does: Name | None
    backward: bool
    verdict: Name
    cases: Count
    seen: Count
    trials: Count
    mode: Name | None
    why: str
    text: str


class Certificate(msgspec.Struct):
    """An audit. `verdicts` follow from the statements, the cases and the device: they are there for readers of JSON."""

    schema: int
    device: Name
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    runs: Count
    software: dict[str, str]
    machine: dict[str, Any]
    statements: Annotated[list[Statement], Meta(max_length=STATEMENTS)]
    cases: Annotated[list[Case], Meta(max_length=CASES)]
    verdicts: list[Verdict]


def read_certificate(path: Path) -> Certificate:
    """The certificate in the file `path`. Raises FileNotFoundError where there is none, OSError where it cannot be
    read, and Refused where it is damaged, none of ours, of another schema, or where its verdicts are not those that its
    statements and cases come to."""
    where = printable(str(path))
    content = records.loads(read_bytes(path, MOST), where)
    if not isinstance(content, dict):
        raise Refused(f"{where}: damaged, or none of ours; copy it again")
    digest = content.pop("digest", None)
    if digest != digest_of(content):
        raise Refused(f"{where}: damaged: it is not as it was written (another hash); copy it again")
    if content.get("schema") != SCHEMA:
        raise Refused(f"{where}: of schema {content.get('schema')}, and this program reads {SCHEMA}")
    certificate = records.conform(content, Certificate, where)
    try:
        msgspec.json.encode(certificate)
    except UnicodeEncodeError:  # halves of surrogate pairs, which no text has
        raise Refused(f"{where}: has text that is none; copy it again") from None
    if wrong := _wrong_verdict(certificate):
        raise Refused(f"{where}: {wrong}; leave it out, or audit again")
    return certificate


def _wrong_verdict(certificate: Certificate) -> str:
    """The first verdict that its own statements and cases contradict, in words; empty where there is none."""
    plain = msgspec.to_builtins(certificate)
    expected = [each.as_dict() for each in verdicts(plain["statements"], plain["cases"], plain["device"])]
    if len(plain["verdicts"]) != len(expected):
        return (
            f"it has {len(plain['verdicts'])} verdicts, and its statements and cases come to {len(expected)}"
        )
    for number, (given, own) in enumerate(zip(plain["verdicts"], expected, strict=True)):
        for key in own:
            if given[key] != own[key]:
                return (
                    f"verdict {number} (of {printable(own['operation'])}) has another {key!r} than its statements and "
                    "cases come to"
                )
    return ""
