"""Certificates of a site's all-reduce: what `identify --json` writes and `identify --against` compares."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kernels.allreduce.instruments.bitwise import Timed
from kernels.allreduce.instruments.dependence import Dependence
from kernels.allreduce.instruments.forced import Forced
from kernels.allreduce.instruments.libraries import Library
from kernels.allreduce.instruments.recognition import Finding
from kernels.allreduce.links import digest_of, read_json
from kernels.guarantees import ChoiceError

SCHEMA = 1


def write_certificate(
    args: argparse.Namespace,
    library: Library,
    forces: Sequence[Forced],
    findings: Sequence[Finding],
    found: Sequence[Dependence],
    times: Sequence[Timed],
) -> None:
    """Write what `identify` found to the file of `--json`, with a hash of it."""
    depends = {f.length: [asdict(each) for each in found if each.length == f.length] for f in findings}
    time = {each.length: asdict(each) for each in times}
    content = {
        "schema": SCHEMA,
        "library": library.name,
        "backend": args.backend or "mpi library",
        "ranks": library.comm.size,
        "dtype": args.dtype,
        "call": args.call,
        "forced": [vars(what) for what in forces],
        "lengths": [
            asdict(f)
            | {"as_forced": f.as_forced(forces[0]) if forces else None}
            | {"depends": depends[f.length], "time": time.get(f.length)}
            for f in findings
        ],
    }
    Path(args.json).write_text(json.dumps(content | {"seal": digest_of(content)}, indent=1) + "\n")


def read_certificate(path: str) -> dict:
    """What `--json` wrote. Raises ChoiceError for a file that is none, or was changed."""
    content = read_json(path, "identify --json")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or "seal" not in content:
        raise ChoiceError(
            f"identify: --against {path}: no certificate of this version; write one by identify --json"
        )
    if content.pop("seal") != digest_of(content):  # shows damage, not forgery
        raise ChoiceError(
            f"identify: --against {path}: was changed after identify wrote it; take an unchanged copy"
        )
    return content


def require_same_question(before: dict, args: argparse.Namespace, size: int) -> None:
    """Raise ChoiceError where a certificate is of other ranks, types or calls."""
    now = {"ranks": size, "dtype": args.dtype, "call": args.call, "backend": args.backend or "mpi library"}
    for key, value in now.items():
        if before.get(key) != value:
            raise ChoiceError(
                f"identify: --against: its {key} is {before.get(key)}, here {value}; compare equal ones"
            )


def changes(before: dict, findings: Sequence[Finding], found: Sequence[Dependence] = ()) -> list[str]:
    """A sentence for each length whose bits, or whose dependences, are not those of a certificate; for lengths of which
    it says nothing."""
    known_lengths = {each["length"]: each for each in before["lengths"]}
    lines = []
    for f in findings:
        old = known_lengths.get(f.length)
        if f.length and old is None:
            lines.append(
                f"length {f.length}: not in the certificate; measure it there with --length {f.length}"
            )
        elif old and (old["digest"], old["repeats"], old["ranks_agree"]) != (
            f.digest,
            f.repeats,
            f.ranks_agree,
        ):
            was, now = (
                ", ".join(names[:3]) or "no ordering of ours" for names in (old["orderings"], f.orderings)
            )
            lines.append(
                f"length {f.length}: OTHER BITS than with {before['library']}: {was} then, {now} now"
            )
    for each in found:
        then = [one for one in known_lengths.get(each.length, {}).get("depends", ()) if one["on"] == each.on]
        if then and (then[0]["differ"] > 0) != (each.differ > 0):
            now, was = ("follow", "did not") if each.differ else ("do not follow", "did")
            lines.append(
                f"length {each.length}: the bits {now} the {each.on} now, and {was} with {before['library']}"
            )
    return lines
