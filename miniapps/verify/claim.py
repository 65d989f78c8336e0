"""What a run claims, and whether it can be verified here: read from its files, which are believed in nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.guarantees import meets
from miniapps.system import environment
from miniapps.system.scope import apart, flatten
from miniapps.trace.chain import Mark
from miniapps.trace.heads import Broken, Chain, check, checkpoint_file, fingerprint_of
from miniapps.trace.reader import read_run
from miniapps.verify.again import Interval

SHOWN = 4  # entries of an environment in a message
APPLICATIONS = ("coupled", "solver", "training")  # that write checkpoints


class NotVerifiable(Exception):
    """A run that cannot be verified, or not here; the message says why, and what can be done."""


@dataclass(frozen=True)
class Claim:
    """The run in the directory `run`: the attributes of its trace, its chains, the first wrong head of each, and the
    `intervals` between heads, repeat after repeat."""

    run: Path
    attributes: dict[str, Any]
    chains: list[Chain]
    broken: list[Broken]
    intervals: list[Interval]

    @property
    def head(self) -> str:
        """The last head of the run."""
        return self.chains[-1].marks[-1].head

    @property
    def fingerprint(self) -> str:
        """How its fingerprints are computed."""
        return fingerprint_of(self.attributes)


def claim(run: Path) -> Claim:
    """What `run` claims. Raises TraceError where it cannot be read, NotVerifiable where nothing can be executed."""
    chains, broken = check(run)
    (trace,) = read_run(run, tables=(), ranks=[0])
    attributes = trace.attributes
    level = attributes["guarantee"]
    if attributes["app"] not in APPLICATIONS:
        raise NotVerifiable(
            f"{run}: {attributes['app']} writes no checkpoints, so that no part of it can be executed again; there "
            f"are: {', '.join(APPLICATIONS)}"
        )
    if not meets(level, "layout"):
        raise NotVerifiable(
            f"{run}: --guarantee {level} promises no equal bits on other ranks; run it with --guarantee layout"
        )
    if not any(mark.checkpoint for chain in chains for mark in chain.marks):
        raise NotVerifiable(f"{run}: it wrote no checkpoints; run it with --checkpoint-every N")
    return Claim(
        run, attributes, chains, broken, [each for chain in chains for each in _intervals(run, trace, chain)]
    )


def require_here(claimed: Claim) -> None:
    """Raise NotVerifiable where processor, libraries or settings are others than those of the run: its promise is over
    one environment."""
    _require_same(claimed, [flatten(environment.shared() | environment.own(1, "cpu"))])


def require_there(claimed: Claim, again: Path) -> None:
    """Raise NotVerifiable where ranks that executed a part `again` had another environment: what libraries say of
    themselves is known once they were loaded, and other ranks may be on other nodes."""
    _require_same(claimed, [flatten(trace.attributes["environment"]) for trace in read_run(again, tables=())])


def _require_same(claimed: Claim, here: list[dict[str, str]]) -> None:
    for trace in read_run(claimed.run, tables=()):
        there = flatten(trace.attributes.get("environment") or {})
        differing = {
            entry: None for own in here for entry in apart(there, own, claimed.attributes["guarantee"])
        }
        if of_bits := [entry for entry in differing if entry[0] != "accelerator"]:
            shown = "; ".join(f"{key}: {theirs} there, {ours} here" for key, theirs, ours in of_bits[:SHOWN])
            more = f"; and {len(of_bits) - SHOWN} more" if len(of_bits) > SHOWN else ""
            raise NotVerifiable(
                f"{claimed.run}: rank {trace.attributes['rank']} ran in another environment, over which nothing is "
                f"promised ({shown}{more}); verify it where these are the same"
            )


def _intervals(run: Path, trace: Any, chain: Chain) -> list[Interval]:
    after, start = chain.begin[0], None
    if after >= 0:
        start = _restarted_from(trace.attributes)
    intervals = []
    for mark in chain.marks:
        intervals.append(_interval(mark, after, start))
        after, start = mark.step, run / checkpoint_file(mark.repeat, mark.step)
    return intervals


def _interval(mark: Mark, after: int, start: Path | None) -> Interval:
    return Interval(mark.repeat, after, mark.step, start, not mark.checkpoint, mark.head, mark.checkpoint)


def _restarted_from(attributes: dict[str, Any]) -> Path:
    """The checkpoint that a run says it continues from."""
    for key, stated in attributes["options"].items():
        section, _, name = key.partition(".")
        if stated.get("effect") == "restart" and (value := attributes["config"].get(section, {}).get(name)):
            return Path(value)
    raise NotVerifiable("its trace does not say from which checkpoint the run continues")
