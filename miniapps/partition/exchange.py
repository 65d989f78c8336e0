"""What ranks send each other so that each has the places of a value that it wants: reshards and halos. Planned once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from miniapps.layout.messages import Messages
from miniapps.partition.axes import Cut
from miniapps.partition.place import Place, Wanted

Index = tuple["slice | np.ndarray", ...]
TYPES = {"bool": np.uint8}


class Exchange:
    """A value of global shape `shape`, held as `cut`, in the places that are `wanted`; zeros where these are outside.

    `group`: the ranks, as `comm` numbers them, that together hold the value; those that differ along carriers of its
    cut. Without `comm` this rank holds all that it wants. Collective to make.
    """

    def __init__(
        self,
        place_of: Callable[[int], Place],
        rank: int,
        comm,
        group: Sequence[int],
        shape,
        cut: Cut,
        wanted: Wanted,
        dtype: str,
    ):
        place = place_of(rank)
        held = _indices(place, shape, cut)
        mine = _indices(place, shape, wanted)
        self.shape = tuple(len(index) for index in mine)
        self.dtype = np.dtype(TYPES.get(dtype, dtype))
        self.keeps = _common(held, mine)
        self.all = self.keeps is not None and all(
            _all(index, n) for index, n in zip(self.keeps[1], self.shape, strict=True)
        )
        self.messages = None
        self.packs: list[tuple[int, int, tuple[int, ...], Index]] = []
        self.unpacks: list[tuple[int, int, tuple[int, ...], Index]] = []
        if comm is None:
            return
        sends: dict[int, tuple[int, int]] = {}
        receives: dict[int, tuple[int, int]] = {}
        out = into = 0
        for peer, other in enumerate(group):
            if other == rank:
                continue
            there = place_of(other)
            going = _common(held, _indices(there, shape, wanted))
            coming = _common(_indices(there, shape, cut), mine)
            if going is not None:
                out = _take(self.packs, sends, peer, out, going[0], held)
            if coming is not None:
                into = _take(self.unpacks, receives, peer, into, coming[1], mine)
        self.messages = Messages(comm, sends, receives, self.dtype)

    @property
    def nbytes(self) -> int:
        """Sent by this rank each time."""
        return 0 if self.messages is None else self.messages.nbytes

    def __call__(self, x):
        """The wanted places, a tensor, of the local part `x` of the value."""
        import torch

        if self.messages is None and self.all and self.keeps is not None and _slices(self.keeps[0]):
            return x[self.keeps[0]].contiguous()  # as all that a rank holds
        source = x.numpy().view(self.dtype)
        messages = self.messages
        if messages is not None:
            for begin, end, shape, index in self.packs:
                np.copyto(messages.outgoing[begin:end].reshape(shape), source[index])
            if messages.requests:
                messages.start()
        result = (
            torch.empty(self.shape, dtype=x.dtype) if self.filled else torch.zeros(self.shape, dtype=x.dtype)
        )
        target = result.numpy().view(self.dtype)
        if self.keeps is not None:
            target[self.keeps[1]] = source[self.keeps[0]]
        if messages is not None and messages.requests:
            messages.finish()
            for begin, end, shape, index in self.unpacks:
                target[index] = messages.incoming[begin:end].reshape(shape)
        return result

    @property
    def filled(self) -> bool:
        """Whether every place is written."""
        return self.all

    def free(self) -> None:
        """Collective."""
        if self.messages is not None:
            self.messages.free()


def _indices(place: Place, shape, wanted: Wanted) -> list[np.ndarray]:
    return [place.indices(of_dim, n) for of_dim, n in zip(wanted, shape, strict=True)]


def _common(held: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> tuple[Index, Index] | None:
    """Where the places that are both held and wanted lie, dim by dim, in what is held and in what is wanted; a place
    may be wanted twice. None without any."""
    source, target = [], []
    for have, want in zip(held, wanted, strict=True):
        real = np.flatnonzero(have >= 0)  # the others pad
        if len(real) == 0 or len(want) == 0:
            return None
        at = np.searchsorted(have[real], want)
        at[at == len(real)] = 0
        to = np.flatnonzero(have[real][at] == want)
        if len(to) == 0:
            return None
        source.append(real[at[to]])
        target.append(to)
    return _compact(source), _compact(target)


def _compact(index: Sequence[np.ndarray]) -> Index:
    """Slices where all places are neighbours, else what NumPy takes as a product of places."""
    slices = []
    for places in index:
        begin, end = int(places[0]), int(places[-1]) + 1
        if end - begin != len(places) or (len(places) > 1 and (np.diff(places) != 1).any()):
            return np.ix_(*index)
        slices.append(slice(begin, end))
    return tuple(slices)


def _slices(index: Index) -> bool:
    return all(isinstance(part, slice) for part in index)


def _all(index, n: int) -> bool:
    return (index.stop - index.start if isinstance(index, slice) else index.size) == n


def _lengths(index: Index) -> tuple[int, ...]:
    return tuple(part.stop - part.start if isinstance(part, slice) else part.size for part in index)


def _take(parts, spans, peer: int, begin: int, index: Index, of) -> int:
    """Note the part that goes to, or comes from, a peer; the place behind it."""
    shape = _lengths(index)
    end = begin + prod(shape)
    parts.append((begin, end, shape, index))
    spans[peer] = begin, end
    return end
