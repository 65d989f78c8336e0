"""The description of a reduction: frozen, the same on all ranks, along axes that are chosen independently.

An ordering defines who sends what to whom and adds when, an accumulation the numbers that hold partial sums, a wire the
encoding of messages. All that can be refused without a communicator is refused when a description is made.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernels import wires
from kernels.allreduce import accumulate, catalog, collectives, links, operations
from kernels.allreduce.coding import Coding, coding
from kernels.allreduce.operations import Operation
from kernels.allreduce.ordering import EQUAL, Ordering, scheduled
from kernels.allreduce.packing import Packing
from kernels.allreduce.schedule import Schedule
from kernels.allreduce.tree import keeps_order
from kernels.guarantees import ChoiceError, known, meets
from kernels.wires.cells import Cells, cells_of

LIBRARY_NUMBERS = ("float64", "float32", "int64")
COLLECTIVES = ("allreduce", "reduce", "reduce-scatter", "allgather")
SHORT_BYTES = 1 << 13  # longest vector for which fewer rounds pay, at the price of more bytes
PAIR_BYTES = 1 << 18  # the same for two ranks, which send no more bytes in fewer rounds
IN = " in "  # between ordering and accumulation, in text
OVER = " over "  # before a wire


@dataclass(frozen=True)
class Reduction:
    """A reduction of contributions (k, *shape) of `dtype` over all blocks of all ranks; each rank has k >= 0 blocks.

    `ordering`     a name in the catalogue, maybe with parameters: "k-nomial:k=8".
    `shape`        of a contribution; a number n stands for (n,).
    `dtype`        or its name: float64, float32, float16, bfloat16 or int64; accumulations and the library take fewer.
    `accumulation` the numbers that hold partial sums: "working", the dtype; "float64"; "compensated", pairs of sum and
                   error; "exact", numbers with the same exact sum, rounded once: every ordering has the same bits. See
                   `kernels.allreduce.accumulate`.
    `wire`         the encoding of messages: "as is"; "packed", words of 64 bits, without loss; or a lossy one for sums
                   of float32, maybe with parameters: "table:n=4,feedback=on". See `kernels.wires` and
                   `kernels.allreduce.coding`.
    `tensors`      for a lossy wire: shapes of the tensors that follow each other in the vector; each is encoded
                   separately. None: the vector is one tensor.
    `divisor`      for a lossy wire, with one contribution of each rank: divides the sum before it is encoded.
    `operation`    an `Operation`, or one of "sum", "prod", "min", "max".
    `collective`   "allreduce"; "reduce", to rank `root` alone; "reduce-scatter", elements evenly(n, size, rank) of the
                   flat total; "allgather", one contribution of each rank, (size, *shape). The last three need an
                   ordering with a schedule.
    `bounds`       for a reduce-scatter: rank r gets elements bounds[r] to bounds[r + 1], maybe none. One number more
                   than ranks, ascending from 0 to the length of the flat total.
    `nodes`        for two-level and trees: the node of every rank; None: ranks that share memory are on one node.
    `packing`      for trees: the spanning trees; None: rank 0 reads them from the file of links in `ordering`.
    `check`        checks before every call that all ranks pass the same shape and type, and after it that all hold the
                   same bits.

    Raises ChoiceError for unknown names and for combinations that do not work, TypeError for a dtype that the ordering
    does not take, ValueError for an impossible shape.
    """

    ordering: str = "direct"
    shape: tuple[int, ...] = ()
    dtype: np.dtype = np.dtype(np.float64)  # noqa: RUF009 (immutable)
    _: KW_ONLY
    accumulation: str = "working"
    wire: str = wires.PLAIN
    operation: Operation = operations.SUM
    collective: str = "allreduce"
    root: int = 0
    bounds: Sequence[int] | None = None
    nodes: Sequence[int] | None = None
    packing: Packing | None = None
    tensors: Sequence[tuple[int, ...]] | None = None
    divisor: int = 1
    check: bool = False

    def __post_init__(self):
        catalog.get(self.ordering)
        for name, value in (
            ("shape", _lengths(self.shape)),
            ("dtype", _type(self.dtype)),
            ("operation", operations.get(self.operation)),
            ("root", operator.index(self.root)),
            ("bounds", None if self.bounds is None else tuple(map(operator.index, self.bounds))),
            ("nodes", None if self.nodes is None else tuple(map(int, self.nodes))),
            ("tensors", None if self.tensors is None else tuple(map(_lengths, self.tensors))),
            ("divisor", operator.index(self.divisor)),
            ("check", bool(self.check)),
        ):
            object.__setattr__(self, name, value)
        known("collective", self.collective, COLLECTIVES)
        self._require_type()
        self._require_operation()
        self._require_collective()
        self._require_packing()
        self._require_bounds()
        self._require_accumulation()
        self._require_wire()
        self._require_divisor()

    @classmethod
    def named(cls, label: str, *shape_and_type, **more) -> Reduction:
        """The reduction of that `label`: "ring", "ring:start=1 in exact", "two-level in exact over packed".

        Over a lossy wire the dtype is float32 if none is given."""
        label, _, wire = label.partition(OVER)
        ordering, _, accumulation = label.partition(IN)
        more |= {"accumulation": accumulation or "working", "wire": wire or wires.PLAIN}
        if coding(more["wire"]) is not None and len(shape_and_type) < 2:
            more.setdefault("dtype", "float32")
        return cls(ordering, *shape_and_type, **more)

    @property
    def label(self) -> str:
        """Ordering, accumulation and wire as text, which `named` reads."""
        label = self.ordering if self.accumulation == "working" else f"{self.ordering}{IN}{self.accumulation}"
        return label if self.wire == wires.PLAIN else f"{label}{OVER}{self.wire}"

    @cached_property
    def entry(self) -> Ordering:
        """The ordering in the catalogue."""
        return catalog.get(self.ordering)

    @property
    def needs_links(self) -> bool:
        """Whether a file of links must still be read."""
        return self.packing is None and self.entry.parameters.get("links", EQUAL) != EQUAL

    @property
    def guarantee(self) -> str:
        """The guarantee about the bits: that of the accumulation, else that of the ordering. Over a lossy wire no total
        is exact, however it is added."""
        held = accumulate.ACCUMULATIONS[self.accumulation].guarantee
        if self.coding is not None and held == "exact":
            return "layout"
        return held or self.entry.guarantee

    @cached_property
    def coding(self) -> Coding | None:
        """The use of a lossy wire; None for a lossless one."""
        return coding(self.wire)

    @property
    def contributions_travel(self) -> bool:
        """Whether contributions travel unchanged, and the ranks that receive them add them exactly."""
        exactly = accumulate.order_free(self.accumulation)
        return (
            self.coding is None
            and exactly
            and self.entry.contributions_meet
            and self.collective == "allreduce"
        )

    @property
    def takes_sums(self) -> bool:
        """Whether a caller may add the largest subtrees of its blocks itself, and contribute their sums."""
        return "owners" in self.entry.needs and self.accumulation == "working" and self.coding is None

    @property
    def element_bytes(self) -> float:
        """Bytes of an element in a message: over a lossy wire the mean, headers of cells included."""
        if self.coding is not None:
            return self.total_bytes / max(math.prod(self.shape), 1)
        if self.contributions_travel:
            return self.dtype.itemsize
        held = accumulate.get(self.accumulation, self.dtype, self.operation)
        return held.width * held.travels.itemsize

    @property
    def total_element_bytes(self) -> float:
        """Bytes of an element in rounds that carry the complete total."""
        return self.dtype.itemsize if self.coding is None else self.element_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of a whole vector in messages."""
        if self.coding is not None:
            return self.coding.codec.nbytes(self.cells)
        return int(math.prod(self.shape) * self.element_bytes)

    @cached_property
    def cells(self) -> Cells:
        """The parts of the vector that a lossy wire encodes separately."""
        whole = self.coding is not None and self.coding.codec.whole
        return cells_of(math.prod(self.shape), self.tensors, whole)

    def is_short(self, size: int) -> bool:
        """Whether fewer rounds with more bytes pay among `size` ranks."""
        return self.total_bytes <= (PAIR_BYTES if size == 2 else SHORT_BYTES)

    def schedule(self, size: int, **context) -> Schedule:
        """The schedule of the collective among `size` ranks.

        `context`: `nodes`, `owners` and `packing`, of which the ordering uses what it needs. Raises ChoiceError for an
        ordering without a schedule, and for a parameter, root or operation that does not work with so many ranks.
        """
        if self.packing is not None:
            context |= {"packing": self.packing}
        schedule = self.entry.schedule(size, self.is_short(size), **context)
        if not (self.operation.commutative or keeps_order(schedule)):
            enough = [o.name for o in catalog.orderings() if o.scheduled and keeps_order(o.schedule(size))]
            raise ChoiceError(
                f"operation {self.operation.name!r} is not commutative, and ordering {self.ordering!r} combines the "
                f"ranks of {size} in another order than theirs; these keep it: {', '.join(enough)}"
            )
        if self.collective == "reduce":
            return collectives.reduce(schedule, self.root)
        if self.collective == "reduce-scatter":
            return collectives.reduce_scatter(schedule, self.bounds)
        return collectives.allgather(schedule) if self.collective == "allgather" else schedule

    def require(self, level: str) -> None:
        """Raises ChoiceError, listing alternatives, unless the guarantee meets that level."""
        if meets(self.guarantee, level):
            return
        enough = ", ".join(o.name for o in catalog.orderings() if meets(o.guarantee, level))
        held = " or ".join(
            name for name, a in accumulate.ACCUMULATIONS.items() if a.guarantee and meets(a.guarantee, level)
        )
        enough = f"orderings {enough}; " if enough else ""
        raise ChoiceError(
            f"all-reduce ordering {self.ordering!r} promises {self.guarantee!r}, less than the {level!r} asked for: "
            f"{self.entry.why}. These meet {level!r}: {enough}any ordering with a schedule, such as direct, in "
            f"accumulation {held}"
        )

    def require_links(self) -> None:
        """Raises ChoiceError if a file of links must still be read and is damaged."""
        if self.needs_links:
            links.read(self.entry.parameters["links"])

    def json(self) -> dict[str, Any]:
        """All that decides the bits and the bytes, for JSON."""
        return {
            "ordering": self._stated,
            "parameters": self.entry.parameters,
            "accumulation": self.accumulation,
            "wire": self.wire,
            "collective": self.collective,
            "operation": self.operation.name,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "guarantee": self.guarantee,
            **({} if self.bounds is None else {"bounds": list(self.bounds)}),
            **({} if self.tensors is None else {"tensors": [list(shape) for shape in self.tensors]}),
        }

    def __str__(self) -> str:
        to = f" to rank {self.root}" if self.collective == "reduce" else ""
        text = (
            f"{self.collective}{to}, ordering {self.ordering!r}, {self.operation.name} of {self.dtype}, "
            f"shape {self.shape}"
        )
        text += "" if self.accumulation == "working" else f", accumulation {self.accumulation!r}"
        text += "" if self.wire == wires.PLAIN else f", wire {self.wire!r}"
        text += "" if self.tensors is None else f", tensors {self.tensors}"
        text += "" if self.divisor == 1 else f", divided by {self.divisor}"
        text += "" if self.bounds is None else f", bounds {self.bounds}"
        text += "" if self.nodes is None else f", nodes {self.nodes}"
        text += "" if self.packing is None else f", packing {self.packing.digest}"
        return text + (", check" if self.check else "")

    @property
    def _stated(self) -> str:
        """The ordering with the digest of its packing instead of a file name, as the file may change."""
        if self.packing is None:
            return self.ordering
        given = self.entry.given | {"links": self.packing.digest}
        return (
            f"{self.ordering.partition(':')[0]}:{','.join(f'{key}={value}' for key, value in given.items())}"
        )

    def _require_type(self) -> None:
        taken = LIBRARY_NUMBERS if self.ordering == "library" else operations.ELEMENTS
        if self.dtype.name not in taken or not self.dtype.isnative:
            raise TypeError(
                f"ordering {self.ordering!r} reduces {', '.join(taken)} in native byte order, not {self.dtype}"
            )

    def _require_operation(self) -> None:
        name = self.operation.name
        if self.ordering == "library" and operations.OPERATIONS.get(name) is not self.operation:
            raise ChoiceError(
                f"ordering 'library' does {', '.join(operations.OPERATIONS)}, not {name!r} of the caller's"
            )
        if self.ordering == "arrival" and not self.operation.commutative:
            raise ChoiceError(
                f"operation {name!r} is not commutative, and 'arrival' combines in any order: choose direct"
            )

    def _require_collective(self) -> None:
        if self.collective != "allreduce" and not self.entry.scheduled:
            raise ChoiceError(
                f"ordering {self.ordering!r} does allreduce only, no {self.collective}, as it has no schedule: choose "
                f"{scheduled()}"
            )
        if self.collective == "allgather" and "owners" in self.entry.needs:
            raise ChoiceError(
                f"ordering {self.ordering!r} adds over blocks; an allgather has none: choose direct or ring"
            )

    def _require_packing(self) -> None:
        if self.packing is not None and "packing" not in self.entry.needs:
            raise ChoiceError(f"ordering {self.ordering!r} has no use for a packing of trees: choose trees")

    def _require_bounds(self) -> None:
        bounds, n = self.bounds, math.prod(self.shape)
        if bounds is None:
            return
        if self.collective != "reduce-scatter":
            raise ChoiceError(f"bounds are for a reduce-scatter, not for {self.collective}: leave bounds out")
        if len(bounds) < 2 or (bounds[0], bounds[-1]) != (0, n):
            raise ValueError(
                f"bounds {_shortened(bounds)} must begin with 0 and end with {n}, the elements of the total"
            )
        wrong = next((i for i, (a, b) in enumerate(itertools.pairwise(bounds)) if b < a), None)
        if wrong is not None:
            raise ValueError(
                f"bounds must not descend: rank {wrong} would get elements {bounds[wrong]} to {bounds[wrong + 1]}"
            )

    def _require_accumulation(self) -> None:
        accumulate.get(self.accumulation, self.dtype, self.operation)
        if self.accumulation == "working":
            return
        if not self.entry.scheduled:
            raise ChoiceError(
                f"accumulation {self.accumulation!r} needs an all-reduce ordering with a schedule, not "
                f"{self.ordering!r}: choose {scheduled()}"
            )
        if self.collective == "allgather":
            raise ChoiceError(f"an allgather adds nothing in {self.accumulation!r}: leave accumulation out")

    def _require_wire(self) -> None:
        if self.tensors is not None and self.coding is None:
            raise ChoiceError(
                f"wire {self.wire!r} encodes no tensors: leave tensors out, or choose a wire that does"
            )
        if self.wire == wires.PLAIN:
            return
        label = f"wire {self.wire!r}"
        if self.coding is not None:
            self._require_coding(label, self.coding)
            return
        if not self.entry.scheduled:
            raise ChoiceError(
                f"{label} needs an all-reduce ordering with a schedule, not {self.ordering!r}: choose "
                f"{scheduled()}"
            )
        if self.contributions_travel:
            raise ChoiceError(
                f"{label}: under {self.ordering!r} in {self.accumulation!r} contributions travel as they are, and no "
                "words of 64 bits: choose another ordering, such as two-level"
            )
        wires.get(self.wire, accumulate.get(self.accumulation, self.dtype, self.operation).travels)

    def _require_divisor(self) -> None:
        if self.divisor != 1 and (self.divisor < 1 or self.coding is None or self.coding.hops != "once"):
            raise ChoiceError(
                f"divisor {self.divisor}: it must be 1 or more, and needs a wire that encodes contributions and total "
                "once; divide other totals after the call"
            )

    def _require_coding(self, label: str, coding: Coding) -> None:
        if not self.entry.scheduled:
            raise ChoiceError(
                f"{label} needs an all-reduce ordering with a schedule, not {self.ordering!r}: choose "
                f"{scheduled()}"
            )
        if self.collective != "allreduce" or self.operation is not operations.SUM or self.dtype != np.float32:
            raise ChoiceError(
                f"{label} carries all-reduces that sum float32, not {self.collective} of {self.operation.name}, "
                f"{self.dtype}: leave the wire out"
            )
        if coding.hops == "once" and self.ordering != "direct":
            raise ChoiceError(
                f"{label} encodes contributions and total once, and under {self.ordering!r} partial sums travel: "
                "choose ordering direct, or add hops=every to the wire, which encodes every message"
            )
        if coding.hops == "every" and self.accumulation != "working":
            raise ChoiceError(
                f"{label} encodes partial sums, which {self.accumulation!r} does not hold as float32: leave hops=every "
                "or the accumulation out"
            )
        if coding.hops == "every" and coding.feedback:
            raise ChoiceError(
                f"{label}: encoding errors of partial sums belong to no block: leave hops=every or feedback=on out"
            )
        self.cells  # noqa: B018 (refuses tensors that do not fill the vector)


def labels(text: str) -> list[str]:
    """Splits labels at commas; a parameter after a comma, `fold=wrap`, belongs to the ordering before it."""
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part.partition(":")[0] and names:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def _shortened(numbers: Sequence[int]) -> str:
    return str(numbers) if len(numbers) <= 8 else f"({numbers[0]}, ..., {numbers[-1]})"


def _lengths(shape) -> tuple[int, ...]:
    lengths = tuple(operator.index(n) for n in np.atleast_1d(np.asarray(shape, dtype=object)))
    if any(n < 0 for n in lengths):
        raise ValueError(f"shape {lengths} has a negative length")
    return lengths


def _type(dtype) -> np.dtype:
    """`dtype`; bfloat16 may also be given by its name."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)
