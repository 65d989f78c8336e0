"""Order discovery: finds the tree by which a function adds, from its results alone.

Put a number M at i and -M at j, so large that adding a unit does not change it, and units everywhere else. A unit that
is added to M or -M before these two meet is lost; f returns the number of the others: the leaves outside the smallest
subtree that contains i and j. The tree follows from such counts (Xie, Gao, Wang and Xue, FPRev: Revealing the Order of
Floating-Point Summation, USENIX ATC 2025). The search draws a random leaf and counts against all others. Leaves with
equal counts form a subtree beside the path from the drawn leaf to the root, and are searched in the same way. The paper
takes the first leaf; a random one needs n log n counts on average for any tree.

Some sums have no such tree; `kernels.tree.NoOrder` describes the results for these.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from kernels.progress import Progress
from kernels.sums.elements import accumulator as accumulator_of
from kernels.tree import COMPENSATED, ORDER_FREE, NoOrder, Tree, canonical, depth, evaluate, leaves, nodes

# (M, unit). float16 has little range: its M absorbs 2**14 units in a float32 accumulator. The other M absorb any number
# of units in any accumulator, and leave room for products and sums of M.
MASKS = {
    "float64": (2.0**768, 1.0),
    "float32": (2.0**96, 1.0),
    "bfloat16": (2.0**96, 1.0),
    "float16": (2.0**15, 2.0**-24),
}
MOST_UNITS = {"float16": 2**14 - 1}  # that M absorbs
WIDER = {  # possible accumulators for elements of a type
    "float64": (np.float64, np.longdouble),
    "float32": (np.float32, np.float64),
    "bfloat16": (np.float32, ml_dtypes.bfloat16, np.float64),
    "float16": (np.float32, np.float16, np.float64),
}
CHECKS = 64  # counts of random pairs that are compared with the discovered tree
PROBES = 16  # random arrays whose sums are compared with those of the discovered tree
ORDERS = 32  # permutations of an ill-conditioned array
ILL_CONDITIONED = {  # two magnitudes besides 1, farther apart than an accumulator has digits
    "float64": (2.0**200, 2.0**100),
    "float32": (2.0**70, 2.0**35),
    "bfloat16": (2.0**70, 2.0**35),
    "float16": (2.0**13, 2.0**0),
}


class NotATree(ValueError):
    """No order of additions explains the function's results; the message names the contradiction."""


class DoesNotRepeat(NotATree):
    """The function returned different sums for the same array."""


def discover(
    f: Callable[[np.ndarray], float],
    n: int,
    dtype: DTypeLike = np.float64,
    precision: DTypeLike | None = None,
    seed: int = 0,
    *,
    comm: Any = None,
    progress: bool = False,
) -> Tree | NoOrder:
    """The order in which `f` adds the n elements of an array; `f` takes a NumPy array (n,) and returns a number.

    `dtype` of the elements: float64, float32, float16 or bfloat16. `precision`: the narrowest type in which f holds
    partial sums and returns the total, by default the type of the elements. A wider one saves calls, since at most as
    many units are counted at once as it holds exactly.

    Results do not distinguish left from right operands: trees have the least index first (`kernels.tree.canonical`).
    Nodes are pairs or, where terms are added at once, longer tuples. For a dot product wrap f with an array of ones.
    float16 elements in float64 accumulators cannot be masked and look like a sum without order.

    `comm`: all its ranks call `discover` with an `f` that adds over them; each is given the whole array, and the result
    of rank 0 counts. `progress`: rank 0 shows the number of calls, and about how many are needed.

    The result is tested: the counts of random pairs must agree, and a tree of pairs must have f's bits for random
    arrays in one of the usual accumulators. Raises NotATree otherwise: for a sum that does not repeat (DoesNotRepeat),
    whose order depends on the values, or whose partial sums have several types. Raises TypeError for other types of
    elements, ValueError for n < 1.
    """
    if n < 1:
        raise ValueError(f"n = {n}: an order of additions needs at least one element")
    counts = _Counts(
        _asking(f, n, comm, progress), n, np.dtype(dtype), precision, np.random.default_rng(seed)
    )
    counts.require_repeats()
    if _keeps_units(counts):
        parts: tuple[Tree, ...] = tuple(range(n))
    else:
        tree = canonical(tuple(_search(counts)))
        parts = tree if isinstance(tree, tuple) else (tree,)
        counts.require_agreement(parts)
    if len(parts) > 1 and _shows_order(counts, parts):
        return NoOrder(COMPENSATED, parts)
    if len(parts) > 1:
        return NoOrder(ORDER_FREE, parts, _rounded_to(counts, parts))
    if _rounds_as(counts, parts[0]):
        return parts[0]
    return NoOrder(COMPENSATED, parts)


def _asking(
    f: Callable[[np.ndarray], float], n: int, comm: Any, progress: bool
) -> Callable[[np.ndarray], float]:
    """`f`, with the result of rank 0 on all ranks, and progress of its calls on rank 0."""
    asking = f
    if progress and (comm is None or comm.rank == 0):
        expected, shown = CHECKS * 3 + 1.4 * n * math.log2(max(n, 2)), Progress("discover")
        count = itertools.count(1)

        def counted(x: np.ndarray) -> float:
            number = next(count)
            shown.show(number / max(expected, number + 1), f"sum {number} of about {expected:.0f}")
            return f(x)

        asking = counted
    return asking if comm is None else lambda x: comm.bcast(asking(x))


class _Counts:
    """Calls f. `inside(i, j)` is the number of leaves of the smallest subtree with i and j."""

    def __init__(
        self,
        f: Callable[[np.ndarray], float],
        n: int,
        dtype: np.dtype,
        precision: DTypeLike | None,
        rng: np.random.Generator,
    ):
        if dtype.name not in MASKS:
            raise TypeError(f"no masks for {dtype}: choose one of {', '.join(MASKS)}")
        self.f, self.n, self.dtype, self.rng = f, n, dtype, rng
        self.large, self.unit = MASKS[dtype.name]
        digits = ml_dtypes.finfo(dtype if precision is None else precision).nmant + 1
        most = min(2**digits, MOST_UNITS.get(dtype.name, n), n)
        self.masks = []  # each has units in a part of the elements, if there are too many to count at once
        for start in range(0, n, most):
            mask = np.zeros(n, dtype)
            mask[start : start + most] = self.unit
            self.masks.append(mask)

    def inside(self, i: int, j: int, large: float | None = None) -> int:
        large = self.large if large is None else large
        outside = 0.0
        for mask in self.masks:
            x = mask.copy()
            x[i], x[j] = large, -large
            outside += float(self.f(x)) / self.unit
        if not math.isfinite(outside):
            raise NotATree(
                f"with {large:g} at {i} and {-large:g} at {j} the sum is {outside}: they are beyond the range of "
                f"the type in which f adds; if that is not {self.dtype}, name it: discover(f, n, dtype=np.float32)"
            )
        if not (outside.is_integer() and 0 <= outside <= self.n - 2):
            raise NotATree(
                f"with {large:g} at {i}, {-large:g} at {j} and {self.unit:g} elsewhere the sum is "
                f"{outside * self.unit:g}: expected a whole number of units from 0 to {self.n - 2}"
            )
        return self.n - int(outside)

    def pairs(self, count: int) -> Iterable[tuple[int, int]]:
        if self.n > 1:
            for _ in range(count):
                i, j = self.rng.choice(self.n, 2, replace=False)
                yield int(i), int(j)

    def require_repeats(self) -> None:
        for i, j in self.pairs(CHECKS // 2):
            first, again = self.inside(i, j), self.inside(i, j)
            if first != again:
                raise DoesNotRepeat(
                    f"two calls for elements {i} and {j} gave {first} and then {again} terms in their smallest "
                    "subtree: the sum does not repeat, so it has no order to discover"
                )

    def require_agreement(self, parts: tuple[Tree, ...]) -> None:
        sizes = _Sizes(parts)
        for i, j in self.pairs(CHECKS):
            counted, expected = self.inside(i, j), sizes.inside(i, j)
            if counted != expected:
                raise NotATree(
                    f"elements {i} and {j} are in a subtree of {counted} terms, but of {expected} by the other "
                    "counts: the sum does not repeat, or its order depends on the values"
                )

    def cancelling(self) -> np.ndarray:
        """Shuffled numbers that nearly cancel: their sum shows the errors of the partial sums."""
        y = self.rng.standard_normal(self.n // 3)
        x = np.concatenate([y, -y, self.rng.standard_normal(self.n - 2 * len(y)) / 64])
        return self.rng.permutation(x).astype(self.dtype)

    def spread(self) -> np.ndarray:
        """Shuffled numbers of all magnitudes, the large ones in pairs that cancel: shows whether f drops small ones."""
        info, pairs = ml_dtypes.finfo(self.dtype), self.n // 3
        magnitudes = np.sort(self.rng.uniform(info.minexp / 2, info.maxexp / 2, self.n - pairs))
        y = self.rng.choice([-1.0, 1.0], self.n - pairs) * np.exp2(magnitudes)
        return self.rng.permutation(np.concatenate([y, -y[len(y) - pairs :]])).astype(self.dtype)


class _Sizes:
    """The counts that trees imply; for two leaves of different trees, the leaves of both trees."""

    def __init__(self, parts: tuple[Tree, ...]):
        self.parent: list[int] = []  # by node, -1 for a root; children have higher numbers
        self.size: list[int] = []
        self.node: dict[int, int] = {}  # of a leaf
        for part in parts:
            todo = [(part, -1)]
            while todo:
                tree, parent = todo.pop()
                self.parent.append(parent)
                self.size.append(0)
                if isinstance(tree, tuple):
                    todo.extend((child, len(self.parent) - 1) for child in tree)
                else:
                    self.node[tree] = len(self.parent) - 1
                    self.size[-1] = 1
        for node in reversed(range(len(self.parent))):
            if self.parent[node] >= 0:
                self.size[self.parent[node]] += self.size[node]

    def inside(self, i: int, j: int) -> int:
        above = self._to_the_root(self.node[i])
        others = self._to_the_root(self.node[j])
        common = set(above) & set(others)
        if not common:
            return self.size[above[-1]] + self.size[others[-1]]
        return min(self.size[node] for node in common)

    def _to_the_root(self, node: int) -> list[int]:
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parent[node]
        return nodes


def _by_count(counts: _Counts, pivot: int, members: list[int]) -> dict[int, list[int]]:
    """The members other than the pivot, grouped by the size of their smallest subtree with it; sizes ascending."""
    groups = defaultdict(list)
    for j in members:
        if j != pivot:
            groups[counts.inside(pivot, j)].append(j)
    return dict(sorted(groups.items()))


def _subtrees(counts: _Counts, members: list[int], size: int) -> list[Tree]:
    """The children of a node of `size` leaves that consist of these members."""
    subtrees = []
    while members:
        pivot = int(counts.rng.choice(members))
        groups = _by_count(counts, pivot, members)
        members = groups.pop(size, [])  # they meet the pivot in this node: its other children
        subtrees.append(_around(counts, pivot, groups))
    return subtrees


def _around(counts: _Counts, pivot: int, groups: dict[int, list[int]]) -> Tree:
    """The subtree of the pivot and all groups; from the leaf upwards, each group joins at one node."""
    tree: Tree = pivot
    reached = 1
    for size, group in groups.items():
        reached += len(group)
        if reached != size:
            raise NotATree(
                f"elements {pivot} and {group[0]} are in a subtree of {size} terms, but {reached} terms were "
                f"found in it: no tree has such counts"
            )
        tree = (tree, *_subtrees(counts, group, size))
    return tree


def _search(counts: _Counts) -> list[Tree]:
    """The tree of f, or several trees whose sums are combined in a way that is no tree."""
    try:
        roots = _subtrees(counts, list(range(counts.n)), counts.n)
    except NotATree:
        parts = _parts(counts)
        if parts is None:
            raise
        return parts
    return [tuple(roots)] if len(roots) > 1 else roots


def _parts(counts: _Counts) -> list[Tree] | None:
    """Trees whose sums are combined such that M absorbs none of them: pairs of two trees count the leaves of both."""
    everything = list(range(counts.n))
    groups = _by_count(counts, 0, everything)
    own = 1  # leaves in the tree of element 0: itself, and perhaps the first groups
    candidates = [own]
    for size, group in groups.items():
        own += len(group)
        if own != size:
            break
        candidates.append(own)
    for own in candidates:
        if all(size <= own or len(group) % (size - own) == 0 for size, group in groups.items()):
            try:
                return _forest(counts, groups, own)
            except NotATree:
                continue
    return None


def _forest(counts: _Counts, groups: dict[int, list[int]], own: int) -> list[Tree]:
    """The trees, if the tree of element 0 has `own` leaves."""
    near = {size: group for size, group in groups.items() if size <= own}
    forest = [_around(counts, 0, near)]
    for size, members in groups.items():
        while size > own and members:
            if size - own == 1:
                forest += members
                break
            pivot = members[0]
            around = _by_count(counts, pivot, members)
            near = {count: group for count, group in around.items() if count <= size - own}
            if 1 + sum(map(len, near.values())) != size - own:
                raise NotATree(f"no tree of {size - own} terms holds element {pivot}")
            forest.append(_around(counts, pivot, near))
            members = [j for count, group in around.items() if count > size - own for j in group]
    return forest


def _rounds_as(counts: _Counts, tree: Tree) -> bool:
    """Whether f has the bits of the tree; False if it carries errors along. Raises NotATree for neither."""
    if any(len(node) > 2 for node in nodes(tree)):
        return True  # the tree does not say how f adds several terms at once
    arrays = [counts.cancelling() for _ in range(PROBES)]
    values = [float(counts.f(x.copy())) for x in arrays]
    for accumulator in WIDER[counts.dtype.name]:
        sums = [evaluate(tree, x.astype(accumulator))[0] for x in arrays]
        if any(
            values == [float(total.astype(result)) for total in sums]
            for result in (accumulator, np.float64, np.float32, counts.dtype)
        ):
            return True
    if _never_farther(counts, tree):
        return False
    nearest = accumulator_of(counts.dtype)
    plain = [float(evaluate(tree, x.astype(nearest))[0]) for x in arrays]
    value, other = next((v, p) for v, p in zip(values, plain, strict=True) if v != p)
    raise NotATree(
        f"the counts fit a tree of depth {depth(tree)}, but a random array has the sum {value.hex()}, and "
        f"{other.hex()} by that tree: the order depends on the values or on chance, "
        "or partial sums are rounded to several types"
    )


def _rounded_to(counts: _Counts, parts: tuple[Tree, ...]) -> str:
    """The narrowest type that explains f's results as exact sums rounded once; empty where none does, or where the
    parts are sums themselves."""
    if any(isinstance(part, tuple) for part in parts):
        return ""
    arrays = [make() for make in (counts.cancelling, counts.spread) for _ in range(PROBES)]
    values = [float(counts.f(x.copy())) for x in arrays]
    exact = [sum(map(Fraction, x.astype(np.float64).tolist())) for x in arrays]
    types = dict.fromkeys(np.dtype(each) for each in (counts.dtype, np.float32, np.float64))
    ascending = sorted(types, key=lambda dtype: ml_dtypes.finfo(dtype).nmant)
    return next((t.name for t in ascending if all(map(partial(_is_nearest, t), values, exact))), "")


def _is_nearest(dtype: np.dtype, value: float, exact: Fraction) -> bool:
    """Whether no number of the type is nearer to `exact` than `value`. Infinity counts as one spacing above the largest
    number."""
    largest = Fraction(float(ml_dtypes.finfo(dtype).max))
    last = largest - Fraction(float(np.nextafter(ml_dtypes.finfo(dtype).max, dtype.type(0))))
    if math.isinf(value):
        return exact * (1 if value > 0 else -1) >= largest + last / 2
    with np.errstate(over="ignore"):
        own = np.asarray(value).astype(dtype)
    if float(own) != value:  # NaN, too
        return False
    beside = [float(np.nextafter(own, dtype.type(end))) for end in (-np.inf, np.inf)]
    ends = [Fraction(x) if math.isfinite(x) else Fraction(value) + (last if x > 0 else -last) for x in beside]
    return all(abs(Fraction(value) - exact) <= abs(other - exact) for other in ends)


def _keeps_units(counts: _Counts) -> bool:
    """Whether M hides no unit, or hides all of them only because M is far larger than needed.

    Fixed-point and binned sums drop elements that are too small beside the largest, but keep units beside the least M
    that would absorb them in an accumulator.
    """
    if counts.n < 3:
        return False
    digits = np.finfo(accumulator_of(counts.dtype)).nmant + 1
    least = min(counts.large, counts.unit * 2.0 ** (digits + counts.n.bit_length() + 1))
    pairs = list(counts.pairs(CHECKS))
    inside = {counts.inside(i, j) for i, j in pairs}
    return inside == {2} or (inside == {counts.n} and all(counts.inside(i, j, least) == 2 for i, j in pairs))


def _never_farther(counts: _Counts, tree: Tree) -> bool:
    """Whether f keeps terms that the tree loses, and is never farther from the exact sum than the tree.

    One term is 1 (1024 in float16); the others are so small that additions to it one by one lose them.
    """
    accumulator, large = accumulator_of(counts.dtype), 1024.0 if counts.dtype == np.float16 else 1.0
    lost = large * float(np.finfo(accumulator).eps) / 2
    nearer = False
    for _ in range(PROBES):
        x = (lost * counts.rng.uniform(0.3, 0.5, counts.n)).astype(counts.dtype)
        x[counts.rng.integers(counts.n)] = large
        exact = sum(map(Fraction, x.astype(np.float64).tolist()))
        sums = counts.f(x.copy()), evaluate(tree, x.astype(accumulator))[0]
        ours, plain = (abs(Fraction(float(value)) - exact) for value in sums)
        if ours > plain:
            return False
        nearer = nearer or ours < plain
    return nearer


def _shows_order(counts: _Counts, parts: tuple[Tree, ...]) -> bool:
    """Whether the sum of ill-conditioned partial sums, one element of each part, changes with their order."""
    rng, m = counts.rng, len(parts)
    large, middle = ILL_CONDITIONED[counts.dtype.name]
    y = rng.standard_normal(m // 5)
    x = np.zeros(counts.n, counts.dtype)
    places = [min(leaves(part)) for part in parts]
    terms = np.concatenate(
        [y * large, -y * large, y[::-1] * middle, -y[::-1] * middle, rng.standard_normal(m - 4 * len(y))]
    )
    values = set()
    for _ in range(ORDERS):
        x[places] = rng.permutation(terms)
        values.add(float(counts.f(x.copy())))
    return len(values) > 1
