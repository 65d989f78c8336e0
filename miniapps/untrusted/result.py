"""result.json: the summary of a run, with a hash of its content and the seals of its traces."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import xxhash
from msgspec import Meta

from miniapps.untrusted import records
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

RESULT = "result.json"
MOST = 64 * 2**20  # bytes: configuration, checks and figures take some 10 kB, each trace file 60 bytes
UNSTATED = ("traces", "digest")
# Names of keys of the file in messages.
WORDS = {
    "fingerprints": "final states",
    "fom": "figures of merit",
    "chain": "heads",
    "wall_s": "times",
    "cpu_s": "times",
}
Hex = Annotated[str, Meta(pattern="^[0-9a-f]*$", max_length=128)]


class Check(msgspec.Struct):
    """One checked property; `repeat` -1: of all repeats together."""

    name: str
    passed: bool
    detail: str = ""
    repeat: int = -1


class Head(msgspec.Struct, frozen=True):
    """A head of the chain of the run (`miniapps.trace.chain.Mark`)."""

    repeat: Annotated[int, Meta(ge=0)]
    step: int
    head: Hex
    checkpoint: Hex = ""
    state: Hex = ""


class Result(msgspec.Struct):
    """The fields that this suite reads; a file may have others.

    `traces`: the seal of each trace file by name; `error`, `failed_rank`: only if `status` is "failed"; `fingerprints`:
    of the final state, by repeat; `parts`: the result of `parts_of`."""

    status: str
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    checks: list[Check] = []
    fingerprints: list[Hex] = []
    traces: dict[str, Hex] = {}
    chain: list[Head] = []
    error: str = ""
    failed_rank: int | None = None
    run_id: str = ""
    size: Annotated[int, Meta(ge=0)] = 0
    seed: int | None = None
    repeats: int | None = None
    app: str = ""
    problem: str = ""
    guarantee: str = ""
    parts: dict[str, str] = {}


def written(content: dict[str, Any]) -> str:
    """The text of a result.json with `content` and its hash, `digest`: strict JSON, with "nan", "inf" and "-inf" as
    texts."""
    strict = _strict(content)
    return (
        json.dumps(strict | {"digest": digest_of(strict)}, indent=1, sort_keys=True, allow_nan=False) + "\n"
    )


def read_result(run: Path) -> Result:
    """Reads RUN/result.json.

    Raises FileNotFoundError if it is missing, OSError if it cannot be read, and Refused if it is damaged or not a
    result.json of this suite."""
    path = Path(run) / RESULT
    where = printable(str(path))
    content = records.loads(read_bytes(path, MOST), where)
    if not isinstance(content, dict):
        raise Refused(f"{where}: damaged, or not written by this suite; copy it again")
    digest = content.pop("digest", None)
    if digest != digest_of(content):
        raise Refused(
            f"{where}: damaged: its content has another hash than it states; copy it again from where the run wrote it"
        )
    result = records.conform(content, Result, where)
    result.parts = parts_of(content)
    return result


def parts_of(content: dict[str, Any]) -> dict[str, str]:
    """{key: SHA-256 of its value in `content`, 32 hex digits}, without the seals of the traces.

    Rank 0 writes them into its trace before it seals the trace."""
    strict = _strict(content)
    texts = {key: json.dumps(value, sort_keys=True) for key, value in strict.items() if key not in UNSTATED}
    return {key: hashlib.sha256(text.encode()).hexdigest()[:32] for key, text in texts.items()}


def differing_parts(result: Result, stated: Mapping[str, str]) -> str:
    """The names of the parts of `result` that differ from those `stated` in the trace of rank 0, as text; empty if
    all agree."""
    keys = sorted(
        key
        for key in {*result.parts, *stated}
        if key not in UNSTATED and result.parts.get(key) != stated.get(key)
    )
    return ", ".join(dict.fromkeys(WORDS.get(key, printable(key)) for key in keys))


def digest_of(content: dict[str, Any]) -> str:
    """The XXH3 hash, in hex, of the JSON of `content` without white space; `content` has no key `digest`."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=True)
    return xxhash.xxh3_128_hexdigest(text.encode())


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
