"""The claims of a run, read from its files, and whether this machine can verify them."""

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

SHOWN = 4  # at most so many entries of an environment in a message
CHECKPOINTS = "checkpoint_every"  # the option of applications that write checkpoints


class NotVerifiable(Exception):
    """A run that cannot be verified, or not here; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Claim:
    """The claims of a run: its heads, `checked`, and the `intervals` between comparable heads, repeat after repeat."""

    checked: Checked
    intervals: list[Interval]

    @property
    def run(self) -> Path:
        """The directory of the run."""
        return self.checked.run

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the trace of rank 0."""
        return self.checked.attributes

    @property
    def fingerprint(self) -> str:
        """The kind of its fingerprints."""
        return fingerprint_of(self.attributes)

    @property
    def wrong(self) -> list[str]:
        """A sentence for each wrong head and each contradiction between its files."""
        return [
            f"step {each.mark.step}: {each.why}" for each in self.checked.broken
        ] + self.checked.contradictions


def claim(run: Path) -> Claim:
    """Reads the claims of the directory `run`.

    Raises TraceError if it cannot be read, NotVerifiable if no part of it can be executed again.
    """
    checked = check(run)
    attributes = checked.attributes
    level = attributes["guarantee"]
    if CHECKPOINTS not in attributes["config"].get("output", {}):
        raise NotVerifiable(
            f"{run}: {attributes['app']} writes no checkpoints, so no part of the run can be executed again"
        )
    if not meets(level, "layout"):
        raise NotVerifiable(
            f"{run}: --guarantee {level} does not promise equal bits on other ranks; run it with --guarantee layout"
        )
    if not any(mark.checkpoint for mark in checked.marks):
        raise NotVerifiable(f"{run}: it wrote no checkpoints; run it with --checkpoint-every N")
    intervals = [each for chain in checked.chains for each in _intervals(run, attributes, chain)]
    return Claim(checked, intervals)


def require_begun(claimed: Claim) -> None:
    """Raise NotVerifiable if the checkpoint from which a run continues has changed since."""
    for chain in claimed.checked.chains:
        after, head = chain.begin
        if after < 0:
            continue
        path = _restarted_from(claimed.attributes)
        if not path.is_file():  # an error only if the draw takes this interval
            continue
        _, there = of_checkpoint(path)
        if there and there != head:
            raise NotVerifiable(
                f"mixed: {claimed.run} continues from the head {head}, and {path} now has the head {there}; copy the "
                "original checkpoint there"
            )


def require_here(claimed: Claim) -> None:
    """Raise NotVerifiable if this processor, a library or a setting differs from the run's: guarantees hold in one
    environment."""
    _require_same(claimed, [flatten(environment.shared() | environment.own(1, "cpu"))])


def require_there(claimed: Claim, again: Path) -> None:
    """Raise NotVerifiable if a rank that executed the part in `again` had another environment.

    The versions of libraries are known only once they are loaded, and ranks may be on other nodes.
    """
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
                f"{claimed.run}: rank {trace.attributes['rank']} ran in another environment, and the guarantee holds "
                f"only in one ({shown}{more}); verify the run where these are the same"
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
    """The checkpoint from which a run continues, by its trace. Raises NotVerifiable if the trace names none."""
    for key, stated in attributes["options"].items():
        section, _, name = key.partition(".")
        if stated.get("effect") == "restart" and (value := attributes["config"].get(section, {}).get(name)):
            return Path(value)
    raise NotVerifiable(
        "the trace does not name the checkpoint from which the run continues: damaged, or not of this suite"
    )
