"""How a reduction uses a lossy wire: which values it encodes, how often, and whether it feeds errors back.

| parameter | value | meaning |
|---|---|---|
| `hops` | `once` | contributions are encoded for the owner of a part, who decodes and adds them; then the total is |
| | `every` | all messages are encoded: partial sums lose digits at each hop |
| `feedback` | `on` | the encoding error of an element is added to it the next time (Seide et al. 2014) |

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
from dataclasses import dataclass
from functools import partial

from kernels import wires
from kernels.allreduce.schedule import Schedule, evenly, transfers
from kernels.guarantees import ChoiceError, known
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec, codec

HOPS = ("once", "every")
FEEDBACK = ("off", "on")
OWN = {"hops": HOPS, "feedback": FEEDBACK}  # parameters beside those of the codec, the default first
CHEAPEST_BITS = 64  # bits of an integer of a partial sum: more bits of contributions travel as their sum


@dataclass(frozen=True)
class Coding:
    """A codec and how it is used."""

    codec: Codec
    hops: str = "once"
    feedback: bool = False


def coding(wire: str) -> Coding | None:
    """Returns the coding that the text of a wire names, `sign:feedback=on`; None for a lossless wire.

    Raises ChoiceError for an unknown name or parameter.
    """
    name, _, given = wire.partition(":")
    if name in wires.SUMMARIES:
        if given:
            raise ChoiceError(f"wire {name!r} has no parameters: leave {given!r} out")
        return None
    known("wire", name, [*wires.SUMMARIES, *wires.LOSSY])
    own = {key: values[0] for key, values in OWN.items()}
    rest = []
    for part in filter(None, given.split(",")):
        key, _, value = part.partition("=")
        if key in OWN:
            known(f"{key} of wire {name!r}", value, OWN[key])
            own[key] = value
        else:
            rest.append(part)
    return Coding(codec(f"{name}:{','.join(rest)}" if rest else name), own["hops"], own["feedback"] == "on")


def sent(
    coding: Coding, cells: Cells, schedule: Schedule, contributions: Sequence[int] | None = None
) -> dict[tuple[int, int], int]:
    """{(sender, receiver): bytes} of one all-reduce. `contributions`: how many of each rank are encoded; None: one."""
    size, codec = schedule.size, coding.codec
    pairs: Counter[tuple[int, int]] = Counter()
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


def part_of(cells: Cells, size: int, rank: int) -> Cells:
    """The cells that a rank owns: as many as every other rank, or one more or fewer."""
    return cells.part(*evenly(len(cells), size, rank))
