"""How a reduction uses a lossy wire: which values it encodes, how often, and whether it feeds errors back.

| parameter | value | meaning |
|---|---|---|
| `hops` | `once` | contributions are encoded for the owner of a part, who decodes and adds them; then the total is |
| | `every` | all messages are encoded: partial sums lose digits at each hop |
| `feedback` | `on` | the encoding error of an element is added to it the next time (Seide et al. 2014) |
| `inner`, `group` | a codec, N | `inner` encodes contributions inside groups of N, the wire's own codec their sums |

`levels` has the messages of groups.

Two rules make all ranks agree, under every ordering. (1) After a part was sent, every rank uses its decoded value, the
sender too; passed on unchanged, it travels as the same bytes. (2) Every rank replaces a finished total by its decoded
value, sent or not.

Under `once` every contribution is encoded, the owner's too. If the accumulation does not depend on order, each block's
contribution is encoded, so that the bits are those of one rank with all blocks; else the sum of a rank's contributions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernels import wires
from kernels.allreduce.levels import Levels
from kernels.allreduce.schedule import Schedule, evenly, transfers
from kernels.guarantees import ChoiceError, known
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec, codec

HOPS = ("once", "every")
FEEDBACK = ("off", "on")
OWN = {"hops": HOPS, "feedback": FEEDBACK}  # parameters beside those of the codec, the default first
INNER = tuple(name for name in wires.LOSSY if name != "table")  # those without parameters that must be given
CHEAPEST_BITS = 64  # bits of an integer of a partial sum: more bits of contributions travel as their sum


@dataclass(frozen=True)
class Coding:
    """A codec and how it is used. `inner`: the codec of contributions in groups of `group`, or None."""

    codec: Codec
    hops: str = "once"
    feedback: bool = False
    inner: Codec | None = None
    group: int = 0


def coding(wire: str) -> Coding | None:
    """Returns the coding that the text of a wire names, `sign:feedback=on`; None for a lossless wire.

    Raises ChoiceError for an unknown name or parameter, and for parameters that do not go together.
    """
    name, _, given = wire.partition(":")
    if name in wires.SUMMARIES:
        if given:
            raise ChoiceError(f"wire {name!r} has no parameters: leave {given!r} out")
        return None
    known("wire", name, [*wires.SUMMARIES, *wires.LOSSY])
    own = {key: values[0] for key, values in OWN.items()}
    rest, levels = [], {}
    for part in filter(None, given.split(",")):
        key, _, value = part.partition("=")
        if key in OWN:
            known(f"{key} of wire {name!r}", value, OWN[key])
            own[key] = value
        elif key in ("inner", "group"):
            levels[key] = value
        else:
            rest.append(part)
    used = Coding(codec(f"{name}:{','.join(rest)}" if rest else name), own["hops"], own["feedback"] == "on")
    return _in_groups(wire, used, **levels) if levels else used


def _in_groups(wire: str, used: Coding, inner: str = "", group: str = "") -> Coding:
    """The coding of two levels. Raises ChoiceError for what two levels do not have."""
    if not inner or not group:
        raise ChoiceError(
            f"wire {wire!r}: two levels need both inner=CODEC and group=N, contributions of a group: "
            "int4:rotate=on,inner=int8,group=4"
        )
    known(f"inner of wire {wire!r}", inner, INNER)
    if not (group.isascii() and group.isdigit() and int(group) > 0):
        raise ChoiceError(f"wire {wire!r}: group: give a number of contributions from 1 on, not {group!r}")
    for given, reason in (
        (used.hops == "every", "hops=every encodes partial sums of ranks, not of groups"),
        (used.feedback, "feedback=on has no place for the errors of sums of groups"),
        (
            used.codec.whole,
            "codecs of inner= have cells of 4096 elements, and cell=tensor is of tables alone",
        ),
    ):
        if given:
            raise ChoiceError(f"wire {wire!r}: {reason}; leave it or inner= out")
    return replace(used, inner=codec(inner), group=int(group))


def sent(
    coding: Coding, cells: Cells, schedule: Schedule, contributions: Sequence[int] | None = None
) -> dict[tuple[int, int], int]:
    """{(sender, receiver): bytes} of one all-reduce. `contributions`: how many of each rank are encoded; None: one.
    Over two levels they are numbered from rank to rank."""
    size, codec = schedule.size, coding.codec
    pairs: Counter[tuple[int, int]] = Counter()
    if coding.inner is not None:
        ends = [0, *itertools.accumulate(contributions or [1] * size)]
        numbers = [range(a, b) for a, b in itertools.pairwise(ends)]
        return _sent_in_groups(coding.codec, coding.inner, cells, Levels(numbers, coding.group, len(cells)))
    if coding.hops == "once":
        parts = [codec.nbytes(part_of(cells, size, rank)) for rank in range(size)]
        count = contributions or [1] * size
        for rank, other in itertools.permutations(range(size), 2):
            pairs[rank, other] = count[rank] * parts[other] + parts[rank]
        return pairs
    offsets, bounds = codec.offsets(cells), partial(schedule.bounds, len(cells))
    for rank, rounds in enumerate(schedule.ranks()):
        for t in (t for current in rounds for t in transfers(current.sends, bounds)):
            pairs[rank, t.peer] += int(offsets[t.stop] - offsets[t.start])
    return pairs


def _sent_in_groups(outer: Codec, inner: Codec, cells: Cells, levels: Levels) -> dict[tuple[int, int], int]:
    ends, ends_inside = outer.offsets(cells), inner.offsets(cells)
    pairs: Counter[tuple[int, int]] = Counter()
    for pair in itertools.permutations(range(len(levels.numbers)), 2):
        inside = [part for *_, part in levels.inside(*pair)]
        others = [*(part for *_, part in levels.across(*pair)), levels.back(*pair), levels.onward(*pair)]
        pairs[pair] = sum(int(ends_inside[b] - ends_inside[a]) for a, b in inside)
        pairs[pair] += sum(int(ends[b] - ends[a]) for a, b in others)
    return pairs


def part_of(cells: Cells, size: int, rank: int) -> Cells:
    """The cells that a rank owns: as many as every other rank, or one more or fewer."""
    return cells.part(*evenly(len(cells), size, rank))
