"""Messages of reshards and halos, planned once, by which each rank gets the elements that it needs of a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from miniapps.layout.messages import Messages
from miniapps.partition.cuts.axes import Cut
from miniapps.partition.execution.place import Place, Wanted

Index = tuple["slice | np.ndarray", ...]
# Elements [begin, end) of a vector, their shape, and their index in an array.
Packed = tuple[int, int, tuple[int, ...], Index]
TYPES = {"bool": np.uint8}


@dataclass(frozen=True)
class Recut:
    """A change of cut: a value of global `shape`, held as `cut`, at the `wanted` places; zeros outside."""

    shape: tuple[int, ...]
    cut: Cut
    wanted: Wanted


class Copied:
    """The elements that a rank copies from its own part: their indices in the held and in the wanted array."""

    def __init__(self, place: Place, value: Recut):
        self.held = _indices(place, value.shape, value.cut)
        self.wanted = _indices(place, value.shape, value.wanted)
        self.shape = tuple(len(index) for index in self.wanted)
        self.keeps = common(self.held, self.wanted)
        self.filled = self.keeps is not None and all(  # every place is written
            _all(index, n) for index, n in zip(self.keeps[1], self.shape, strict=True)
        )
        self.is_view = self.filled and self.keeps is not None and _slices(self.keeps[0])

    def view(self, x):
        """The wanted places of a tensor if this rank holds all of them (`is_view`)."""
        assert self.keeps is not None
        return x[self.keeps[0]].contiguous()  # like every local array

    def __call__(self, x, dtype: np.dtype):
        """Returns (tensor of the wanted places with this rank's own elements, the same memory as an array of
        `dtype`)."""
        import torch

        result = (torch.empty if self.filled else torch.zeros)(self.shape, dtype=x.dtype)
        target = result.numpy().view(dtype)
        if self.keeps is not None:
            target[self.keeps[1]] = x.numpy().view(dtype)[self.keeps[0]]
        return result, target


class Exchange:
    """Recuts several values of one dtype at once: called with their local parts, it returns a list of tensors with the
    wanted places.

    `group`: ranks of the run, in the order of `comm`, that together hold the values: they differ along the carriers of
    the cuts. Without `comm` this rank holds all wanted elements. Construction is collective.
    """

    def __init__(
        self,
        place_of: Callable[[int], Place],
        rank: int,
        comm,
        group: Sequence[int],
        values: Sequence[Recut],
        dtype: str,
    ):
        self.dtype = np.dtype(TYPES.get(dtype, dtype))
        self.own = [Copied(place_of(rank), value) for value in values]
        self.messages = None
        self.received: dict[int, int] = {}  # bytes from each rank of the group
        self._begun: list = []  # results that lack what comes, with their memory
        # For each value (begin, end, shape, index in the value's array). An element that is wanted twice is sent once;
        # the second index then maps wanted places to received elements.
        self.packs: list[list[Packed]] = [[] for _ in values]
        self.unpacks: list[list[tuple[Packed, Index, Index | None]]] = [[] for _ in values]
        if comm is None:
            return
        sends: dict[int, tuple[int, int]] = {}
        receives: dict[int, tuple[int, int]] = {}
        out = into = 0
        for peer, other in enumerate(group):
            if other == rank:
                continue
            there = place_of(other)
            first = out, into
            for k, (value, own) in enumerate(zip(values, self.own, strict=True)):
                going = common(own.held, _indices(there, value.shape, value.wanted))
                coming = common(_indices(there, value.shape, value.cut), own.wanted)
                if going is not None:
                    out = take(self.packs[k], out, once(going[0])[0])
                if coming is not None:
                    places, repeated = once(coming[0])
                    parts: list[Packed] = []
                    into = take(parts, into, places)
                    self.unpacks[k].append((parts[0], coming[1], repeated))
            if out > first[0]:
                sends[peer] = first[0], out
            if into > first[1]:
                receives[peer] = first[1], into
        self.messages = Messages(comm, sends, receives, self.dtype)
        self.received = {peer: (end - begin) * self.dtype.itemsize for peer, (begin, end) in receives.items()}

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends in each exchange."""
        return 0 if self.messages is None else self.messages.nbytes

    @property
    def waits(self) -> bool:
        """Whether this rank waits for messages."""
        return self.messages is not None and bool(self.messages.requests)

    def __call__(self, *xs) -> list:
        if self.messages is None:
            return [
                own.view(x) if own.is_view else own(x, self.dtype)[0]
                for own, x in zip(self.own, xs, strict=True)
            ]
        self.start(*xs)
        return self.finish()

    def start(self, *xs) -> None:
        """Begin an exchange among several ranks, which `finish` ends."""
        messages = self.messages
        assert messages is not None
        for x, packs in zip(xs, self.packs, strict=True):
            source = x.numpy().view(self.dtype)
            for begin, end, shape, index in packs:
                np.copyto(messages.outgoing[begin:end].reshape(shape), source[index])
        if messages.requests:
            messages.start()
        self._begun = [own(x, self.dtype) for own, x in zip(self.own, xs, strict=True)]

    def progress(self) -> None:
        """Advance the exchange that `start` began, without waiting."""
        if self.messages is not None and self.messages.requests:
            self.messages.progress()

    def finish(self) -> list:
        """What a call returns, of the exchange that `start` began."""
        messages, results, self._begun = self.messages, self._begun, []
        assert messages is not None
        if messages.requests:
            messages.finish()
            for (_, target), unpacks in zip(results, self.unpacks, strict=True):
                for (begin, end, shape, _), index, repeated in unpacks:
                    came = messages.incoming[begin:end].reshape(shape)
                    target[index] = came if repeated is None else came[repeated]
        return [result for result, _ in results]

    def free(self) -> None:
        """Free the requests. Collective."""
        if self.messages is not None:
            self.messages.free()


def _indices(place: Place, shape, wanted: Wanted) -> list[np.ndarray]:
    return [place.indices(of_dim, n) for of_dim, n in zip(wanted, shape, strict=True)]


def common(held: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> tuple[Index, Index] | None:
    """The indices, in the held and in the wanted array, of the places that are in both; None without any. A place may
    be wanted twice."""
    source, target = [], []
    for have, want in zip(held, wanted, strict=True):
        real = np.flatnonzero(have >= 0)  # -1 is padding
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


def once(index: Index) -> tuple[Index, Index | None]:
    """Returns the places of an index without repetition, and the position of each place of `index` among them (None
    without repetition). Places repeat where windows of neighbouring blocks overlap."""
    listed = [part for part in index if isinstance(part, np.ndarray)]  # all parts, or none
    found = [np.unique(part, return_inverse=True) for part in listed]
    if all(len(places) == part.size for (places, _), part in zip(found, listed, strict=True)):
        return index, None
    return _compact([places for places, _ in found]), np.ix_(*(inverse.ravel() for _, inverse in found))


def _compact(index: Sequence[np.ndarray]) -> Index:
    """Slices if all places are neighbours, else NumPy's index of a product of places."""
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


def take(parts: list[Packed], begin: int, index: Index) -> int:
    """Append the elements at `index` of an array, which start at `begin` in a vector; returns their end."""
    shape = _lengths(index)
    end = begin + prod(shape)
    parts.append((begin, end, shape, index))
    return end
