"""certificate.json: the trials and results of an audit of operations, with a hash of the file's content."""

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
STATEMENTS, CASES = (
    2**10,
    2**13,
)  # all pairs are compared; torch 2.13 has 48 statements, and there are 789 cases
Count = Annotated[int, Meta(ge=0, le=2**40)]
Name = Annotated[str, Meta(max_length=4096)]


class Change(msgspec.Struct):
    """The results under one changed condition; metrics compare all distinct results with the first.

    `by`: distinct results by number of threads, or by layer and level of code (`cpu`); `alone`: by the one pool whose
    threads were varied; `failed`: conditions under which a call failed; `skipped`: why parts of the result are not
    compared; `parts`: those that differ; `hint`: which arguments may have samples too."""

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
    parts: list[Name] = []
    hint: str = ""


class Mode(msgspec.Struct):
    """The effect of torch's deterministic mode: `throws`, its message, or `runs` and `threads` with the mode.

    `algorithm`: a call with the mode against a call without; `seconds`: median times of a call without and with the
    mode; `failed`: another error."""

    seconds: tuple[float | None, float | None]
    throws: str | None = None
    failed: str | None = None
    runs: Change | None = None
    threads: Change | None = None
    algorithm: Change | None = None


class Replaced(msgspec.Struct):
    """The results inside of `fpna.torch.replaced()`. `calls`: the calls of torch that it replaced, by name; without any
    there are no results."""

    calls: dict[Name, Count] = {}
    runs: Change | None = None
    threads: Change | None = None


class Elsewhere(msgspec.Struct):
    """CPU time, in s, of threads outside the known pools during a call with one thread per pool; `packages` with such
    threads; `lacking`: pools that could not be searched."""

    seconds: float = 0.0
    packages: list[Name] = []
    lacking: str = ""


class Audit(msgspec.Struct):
    """The results of a case under each changed condition. `pools`: the numbers of threads of each pool; `skipped`: why
    parts of the result are not compared; `not_tried`: why conditions are missing; `inputs`: hash of the inputs."""

    digest: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    runs: Change
    mode: Mode
    replaced: Replaced | None = None
    elements: Count = 0
    threads: Change | None = None
    batch: Change | None = None
    position: Change | None = None
    address: Change | None = None
    process: Change | None = None
    cpu: Change | None = None
    pools: dict[Name, list[Count]] = {}
    elsewhere: Elsewhere | None = None
    skipped: dict[Name, str] = {}
    not_tried: dict[Name, str] = {}
    inputs: str = ""


class Case(msgspec.Struct):
    """One case. `outcome`: "done", or, with an `error`, "refused" (by torch), "nothing" (to compare), "crashed", "hung"
    or "slow"."""

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
    """The verdict about a statement, or about an operation that differs without a statement (`does` None)."""

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
    """An audit. `verdicts` follow from statements, cases and device; the file has them for other readers of JSON."""

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
    """Reads the certificate in the file `path`.

    Raises FileNotFoundError if it is missing, OSError if it cannot be read, and Refused if it is damaged, not a
    certificate, of another schema, or has verdicts that do not follow from its statements and cases."""
    where = printable(str(path))
    content = records.loads(read_bytes(path, MOST), where)
    if not isinstance(content, dict):
        raise Refused(f"{where}: damaged, or not written by this suite; copy it again")
    digest = content.pop("digest", None)
    if digest != digest_of(content):
        raise Refused(f"{where}: damaged: its content has another hash than it states; copy it again")
    if content.get("schema") != SCHEMA:
        raise Refused(
            f"{where}: has schema {content.get('schema')}, and this version reads {SCHEMA}; audit again"
        )
    certificate = records.conform(content, Certificate, where)
    try:
        msgspec.json.encode(certificate)
    except UnicodeEncodeError:  # halves of surrogate pairs
        raise Refused(f"{where}: has text that is not valid Unicode; copy it again") from None
    if wrong := _wrong_verdict(certificate):
        raise Refused(f"{where}: {wrong}; leave it out, or audit again")
    return certificate


def _wrong_verdict(certificate: Certificate) -> str:
    """A phrase about the first verdict that contradicts the statements and cases; empty if all follow."""
    plain = msgspec.to_builtins(certificate)
    expected = [each.as_dict() for each in verdicts(plain["statements"], plain["cases"], plain["device"])]
    if len(plain["verdicts"]) != len(expected):
        return f"it has {len(plain['verdicts'])} verdicts, but its statements and cases give {len(expected)}"
    for number, (given, own) in enumerate(zip(plain["verdicts"], expected, strict=True)):
        for key in own:
            if given[key] != own[key]:
                return (
                    f"verdict {number} (of {printable(own['operation'])}) has another {key!r} than its statements and "
                    "cases give"
                )
    return ""
