"""What one rank does in a step, as plain data: calls of kernels, moves between them, and messages. No torch, no MPI."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from kernels.wires import PLAIN
from miniapps.partition.graphs.graph import ITEMSIZE

Part = Literal["whole", "start", "finish"]


@dataclass(frozen=True)
class Array:
    """Type, shape and layout of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    contiguous: bool = True

    @property
    def elements(self) -> int:
        """Their number."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.elements * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class KernelCall:
    """A call of the kernel `target` of the plan's `node`: its operands and results, and its `constants`: (arguments,
    pairs of named arguments), "%" for each operand. `own`: by a kernel of this suite. `blocks`: lengths of blocks that
    one call adds. `flops`: floating-point operations of a manual region; of others its shapes tell them."""

    node: str
    target: str
    own: bool
    operands: tuple[Array, ...]
    constants: tuple[tuple, tuple]
    results: tuple[Array, ...]
    blocks: tuple[int, ...] = ()
    flops: int = 0


@dataclass(frozen=True)
class Moves:
    """An operation of torch between kernels, such as a cut, a copy, a join or a sum of blocks; `results` have memory of
    their own, none if it is a view."""

    name: str
    operands: tuple[Array, ...]
    results: tuple[Array, ...]


@dataclass(frozen=True)
class Sent:
    """An exchange of the `node` among the ranks of `group`, empty if nothing is sent by any: bytes sent to each rank,
    and bytes that stay on this one. `tag`: of a message between stages, for which no rank waits; else -1. `part`: as of
    a `miniapps.untrusted.program.Wait`. `came`: bytes that come from each rank."""

    node: str
    group: tuple[int, ...]
    to: tuple[tuple[int, int], ...]
    stays: int
    tag: int = -1
    part: Part = "whole"
    came: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Summed:
    """A reduction of the `node` over the ranks of `group`: its ordering, accumulation, elements, and the blocks of this
    rank; `scatters`: each rank gets only its part; its `wire`; `part` as of `Sent`."""

    node: str
    group: tuple[int, ...]
    ordering: str
    accumulation: str
    dtype: str
    elements: int
    blocks: int
    scatters: bool
    wire: str = PLAIN
    part: Part = "whole"


@dataclass(frozen=True)
class Arrived:
    """A value that the `node` of this rank needs and the rank `source` computes, of another stage: the message `tag`;
    its bytes."""

    node: str
    source: int
    nbytes: int
    tag: int


@dataclass(frozen=True)
class Told:
    """A message between the blocks of a manual region, the `node`, on the ranks of `group`: `what` it is for along a
    `letter`, or that no block has another one; bytes sent to each rank. Every rank gets the tensors of all blocks.
    Sums in the tree over the blocks, packing and unpacking belong to the region's kernel."""

    node: str
    group: tuple[int, ...]
    what: str
    letter: str
    to: tuple[tuple[int, int], ...]


Event = KernelCall | Moves | Sent | Summed | Arrived | Told
