"""What a run claims, and whether it can be verified here: read from its files, which are believed in nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.guarantees import meets
from miniapps.system import environment
from miniapps.system.scope import apart, flatten
from miniapps.trace.chain import Mark
from miniapps.trace.checked import Checked, check, of_checkpoint
from miniapps.trace.heads import Chain, checkpoint_file, fingerprint_of
from miniapps.trace.reader import read_run
from miniapps.verify.again import Interval

SHOWN = 4  # entries of an environment in a message
CHECKPOINTS = "checkpoint_every"  # the option of applications that write them


class NotVerifiable(Exception):
    """A run that cannot be verified, or not here; the message says why, and what can be done."""


@dataclass(frozen=True)
class Claim:
    """The run in the directory `run`: what came of its heads, `checked`, and the `intervals` between those that can be
    compared, repeat after repeat."""

    checked: Checked
    intervals: list[Interval]

    @property
    def run(self) -> Path:
        """The directory."""
        return self.checked.run

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of the trace of rank 0."""
        return self.checked.attributes

    @property
    def fingerprint(self) -> str:
        """How its fingerprints are computed."""
        return fingerprint_of(self.attributes)

    @property
    def wrong(self) -> list[str]:
        """What in its files does not follow from the rest, a sentence each."""
        return [
            f"step {each.mark.step}: {each.why}" for each in self.checked.broken
        ] + self.checked.contradictions


def claim(run: Path) -> Claim:
    """What `run` claims. Raises TraceError where it cannot be read, NotVerifiable where nothing can be executed."""
    checked = check(run)
    attributes = checked.attributes
    level = attributes["guarantee"]
    if CHECKPOINTS not in attributes["config"].get("output", {}):
        raise NotVerifiable(
            f"{run}: {attributes['app']} writes no checkpoints, so that no part of it can be executed again"
        )
    if not meets(level, "layout"):
        raise NotVerifiable(
            f"{run}: --guarantee {level} promises no equal bits on other ranks; run it with --guarantee layout"
        )
    if not any(mark.checkpoint for mark in checked.marks):
        raise NotVerifiable(f"{run}: it wrote no checkpoints; run it with --checkpoint-every N")
    intervals = [each for chain in checked.chains for each in _intervals(run, attributes, chain)]
    return Claim(checked, intervals)


def require_begun(claimed: Claim) -> None:
    """Raise NotVerifiable where a run continues from a checkpoint that is there and is not the one by now."""
    for chain in claimed.checked.chains:
        after, head = chain.begin
        if after < 0:
            continue
        path = _restarted_from(claimed.attributes)
        if not path.is_file():  # told where the interval is executed
            continue
        _, there = of_checkpoint(path)
        if there and there != head:
            raise NotVerifiable(
                f"mixed: {claimed.run}: it continues from the head {head}, and {path} has {there} by now; put the "
                "checkpoint there that it was started from"
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


def _intervals(run: Path, attributes: dict[str, Any], chain: Chain) -> list[Interval]:
    after, start = chain.begin[0], None
    if after >= 0:
        start = _restarted_from(attributes)
    intervals = []
    for mark in chain.marks:
        intervals.append(_interval(mark, after, start))
        after, start = mark.step, run / checkpoint_file(mark.repeat, mark.step)
    return intervals


def _interval(mark: Mark, after: int, start: Path | None) -> Interval:
    return Interval(
        mark.repeat, after, mark.step, start, bool(mark.state), mark.head, mark.checkpoint, mark.state
    )


def _restarted_from(attributes: dict[str, Any]) -> Path:
    """The checkpoint that a run says it continues from."""
    for key, stated in attributes["options"].items():
        section, _, name = key.partition(".")
        if stated.get("effect") == "restart" and (value := attributes["config"].get(section, {}).get(name)):
            return Path(value)
    raise NotVerifiable("its trace does not say from which checkpoint the run continues")
