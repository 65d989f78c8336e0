"""Heads that a run published: the lines `CHAIN step=S head=H` in its saved output."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from miniapps.trace.chain import Mark
from miniapps.trace.checked import Checked
from miniapps.untrusted import Refused, read_bytes
from miniapps.untrusted.text import printable

MOST = 2**26  # bytes of the output of a job
# A launcher may write the rank before a line: `0: `, `[1,0]<stdout>: `.
LINE = re.compile(
    r"(?:\S{1,40}? ?)?CHAIN step=([0-9]{1,10}) head=([0-9a-f]{64})(?: repeat=([0-9]{1,10}))?\s*"
)
BEGUN = re.compile(r"(?:\S{1,40}? ?)?CHAIN step=")  # also matches a line that was cut off

Place = tuple[int, int]  # repeat and step


@dataclass(frozen=True)
class Published:
    """The `heads` in a file by (repeat, step), and the numbers of `unread` lines, which were cut off."""

    path: Path
    heads: dict[Place, str]
    unread: tuple[int, ...] = ()


@dataclass(frozen=True)
class Compared:
    """Published heads compared with the heads of a run.

    Heads of the run: `equal` to the published ones, `other` (with the published head), `unpublished`. Published heads
    without a head of the run: `absent`, `before` the checkpoint from which it continues, `later` than the last compared
    head. `begins`: (place, head of the checkpoint, published head) where these two differ."""

    equal: list[Mark] = field(default_factory=list)
    other: list[tuple[Mark, str]] = field(default_factory=list)
    unpublished: list[Mark] = field(default_factory=list)
    absent: list[Place] = field(default_factory=list)
    before: list[Place] = field(default_factory=list)
    later: list[Place] = field(default_factory=list)
    begins: list[tuple[Place, str, str]] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """The contradictions to the run, a sentence each."""
        sentences = [
            f"step {mark.step}{_of(mark.repeat)}: the head is {mark.head}, and {head} was published"
            for mark, head in self.other
        ]
        sentences += [
            f"step {step}{_of(repeat)}: the run continues from the head {ours}, and {head} was published"
            for (repeat, step), ours, head in self.begins
        ]
        return sentences + [
            f"step {step}{_of(repeat)}: a head was published, and the run has none there"
            for repeat, step in self.absent
        ]

    def sentence(self, published: Published) -> str:
        """States how many heads were compared, and which were not."""
        total = len(self.equal) + len(self.other) + len(self.unpublished)
        lines = [
            f"{len(self.equal) + len(self.other)} of {total} heads were published in {printable(str(published.path))}"
        ]
        if self.other:
            lines.append(f"{len(self.other)} of them differ")
        if self.unpublished:
            lines.append(f"not published: {_listed((m.repeat, m.step) for m in self.unpublished)}")
        if self.later:
            lines.append(
                f"published, but not compared, since the run is only readable up to an earlier step: "
                f"{_listed(self.later)}"
            )
        if self.before:
            lines.append(
                f"published, but before the checkpoint from which the run continues: {_listed(self.before)}"
            )
        if published.unread:
            lines.append(f"cut off and not compared: line {', '.join(map(str, published.unread[:4]))}")
        return "; ".join(lines) + "."


def read_published(path: str | os.PathLike) -> Published:
    """Reads the heads in the file `path`. Raises Refused if it cannot be read, has no heads, or two of one step."""
    path, shown = Path(path), printable(os.fspath(path))
    try:
        content = io.BytesIO(read_bytes(path, MOST, links=True))
    except OSError as error:
        raise Refused(f"{shown}: cannot be read: {error.strerror}; give the output of the run") from error
    heads: dict[Place, tuple[str, int]] = {}
    unread = []
    whole = ((number, line.decode("utf-8", "replace")) for number, line in enumerate(content, 1))
    lines = ((number, part) for number, line in whole for part in line.removesuffix("\n").split("\r"))
    for number, line in lines:  # whatever else a job printed
        if match := LINE.fullmatch(line):
            step, head, repeat = match.groups()
            place = int(repeat or 0), int(step)
            known, before = heads.setdefault(place, (head, number))
            if known != head:
                raise Refused(
                    f"{shown}: lines {before} and {number} name two heads of step {place[1]}{_of(place[0])}; give the "
                    "output of one run"
                )
        elif BEGUN.match(line):
            unread.append(number)
    if not heads:
        raise Refused(f"{shown}: no line CHAIN step=S head=H in it; give the output of the run")
    return Published(path, {place: head for place, (head, _) in heads.items()}, tuple(unread))


def compare(published: Published, checked: Checked) -> Compared:
    """Compares the published heads with the heads of a run."""
    result = Compared()
    rest = dict(published.heads)
    for mark in checked.marks:
        head = rest.pop((mark.repeat, mark.step), None)
        if head is None:
            result.unpublished.append(mark)
        elif head == mark.head:
            result.equal.append(mark)
        else:
            result.other.append((mark, head))
    ends = {chain.repeat: chain for chain in checked.chains}
    last = max((mark.repeat, mark.step) for mark in checked.marks)
    for place in sorted(rest):
        chain = ends.get(place[0])
        begin = (-1, "") if chain is None else chain.begin
        if place[1] == begin[0] and rest[place] != begin[1]:
            result.begins.append((place, begin[1], rest[place]))
        elif place[1] == begin[0]:
            continue
        elif place[1] < begin[0]:
            result.before.append(place)
        elif checked.cut and place > last:
            result.later.append(place)
        else:
            result.absent.append(place)
    return result


def _listed(places: Iterable[Place]) -> str:
    given = list(places)
    shown = ", ".join(f"{step}{_of(repeat)}" for repeat, step in given[:4])
    more = f" and {len(given) - 4} more" if len(given) > 4 else ""
    return f"step{'s' * (len(given) > 1)} {shown}{more}"


def _of(repeat: int) -> str:
    return f" of repeat {repeat}" if repeat else ""
