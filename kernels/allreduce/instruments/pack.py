"""Packs spanning trees into measured links by linear programmes, which SciPy's HiGHS solves.

An all-reduce along a tree sends a sum up each edge and a total down it. So a tree of weight w uses w of each edge in
both directions, and w of a port for every edge that passes it. The largest sum of weights is the rate at which trees
can reduce a vector:

    maximise the sum of w[T] over all spanning trees T, such that
        for each edge: the weights of the trees with this edge sum to at most its capacity,
        for each port: the weights of the trees, times their edges that pass it, sum to at most its rate.

Without ports this is the fractional packing of Tutte and Nash-Williams (1961). Its value is the least over partitions
of the capacity between the parts, divided by their number less one. With a port of rate b for each of m vertices, the
value is b m / (2 (m - 1)): each vertex sends and receives 2 (m - 1) / m of the vector, as it must in any all-reduce.

There are too many trees to list. The programme starts with a few; its dual values are prices of edges and ports. The
cheapest tree at these prices, a minimum spanning tree, joins the others until none costs less than 1 (column
generation, Gilmore and Gomory 1961). Dual values divided by the price of the cheapest tree bound every packing.

Of the packings within `slack` of the largest rate, one of low and few trees is chosen: every level costs one message
after another, and every tree one message more. (Wang et al. 2020, Blink, use an integer programme.)
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.allreduce.links import Linked, Links
from kernels.allreduce.packing import ROOT, WHOLE, Packing, SpanningTree
from kernels.guarantees import ChoiceError

SLACK = 0.03
GAP = 1e-6  # between rate and bound, relative, at which the search for trees ends
LONGEST_S = 60.0  # for the search for more trees, and again for that for fewer: then the best so far is used
LEAST = 1e-9  # of the largest weight: a smaller weight counts as 0

Edge = tuple[int, int]
Edges = frozenset[Edge]


@dataclass(frozen=True)
class Limits:
    """Edges with their capacities (e,), and ports, each as a row (e,) of 1 for the edges that pass it, with rates."""

    vertices: int
    edges: list[Edge]
    capacity: np.ndarray
    passes: np.ndarray
    rate: np.ndarray

    def row(self, tree: Edges) -> np.ndarray:
        """The use of every edge and port by a tree of weight 1."""
        taken = np.array([edge in tree for edge in self.edges], float)
        return np.concatenate([taken, self.passes @ taken])

    @property
    def room(self) -> np.ndarray:
        """The capacity of every edge, and the rate of every port."""
        return np.concatenate([self.capacity, self.rate])

    def prices(self, dual: np.ndarray) -> np.ndarray:
        """The price of every edge, with those of its ports."""
        count = len(self.edges)
        return dual[:count] + self.passes.T @ dual[count:]


def pack(links: Links, slack: float = SLACK) -> Linked:
    """Returns trees whose weights carry at least 1 - `slack` of the largest rate that trees over these links can.

    Raises ChoiceError if SciPy is not installed.
    """
    if links.vertices == 1:
        return Linked(links, Packing((SpanningTree((ROOT,), 1),)))
    limits = _limits(links)
    scale = limits.room.max()
    limits = Limits(
        limits.vertices, limits.edges, limits.capacity / scale, limits.passes, limits.rate / scale
    )
    trees, best, bound = _most(limits)
    trees, weights = _few(limits, trees, best * (1 - slack))
    rooted = _rooted(limits.vertices, trees, weights)
    packing = Packing(tuple(rooted))
    rate = carried(links, packing)
    return Linked(links, packing, _digits(rate), _digits(max(rate, bound * scale)))


def carried(links: Links, packing: Packing) -> float:
    """Bytes of a vector per second that the shares of a packing carry over links; the fullest edge or port limits them.
    Infinite for one vertex."""
    if links.vertices == 1:
        return float("inf")
    limits = _limits(links)
    whole = sum(tree.share for tree in packing.trees)
    taken = sum(tree.share / whole * limits.row(frozenset(tree.edges)) for tree in packing.trees)
    return float(1 / np.max(taken / limits.room))


def _limits(links: Links) -> Limits:
    pairs = [(u, v) for v in range(links.vertices) for u in range(v) if links.capacity(u, v) > 0]
    passes = np.array(
        [[(u in port.vertices) != (v in port.vertices) for u, v in pairs] for port in links.ports]
    )
    return Limits(
        links.vertices,
        pairs,
        np.array([links.capacity(*pair) for pair in pairs]),
        passes.reshape(len(links.ports), len(pairs)).astype(float),
        np.array([port.rate for port in links.ports]),
    )


def _most(limits: Limits) -> tuple[list[Edges], float, float]:
    """Trees with the largest sum of weights, this sum, and an upper bound on the sum of any trees."""
    trees = _first(limits)
    known, bound = set(trees), np.inf
    end = time.monotonic() + LONGEST_S
    while True:
        weights, dual = _heaviest(limits, trees)
        best = float(weights.sum())
        cheapest, price = _cheapest(limits, limits.prices(dual))
        bound = min(bound, float(dual @ limits.room) / price) if price > 0 else bound
        if bound <= best * (1 + GAP) or cheapest in known or time.monotonic() > end:
            break
        trees.append(cheapest)
        known.add(cheapest)
    return trees, best, max(bound, best)


def _few(limits: Limits, trees: list[Edges], least: float) -> tuple[list[Edges], np.ndarray]:
    """A few low `trees`, and their weights, with a sum of at least `least`."""
    heights = np.array([_height(limits.vertices, tree) for tree in trees], float)
    end = time.monotonic() + LONGEST_S

    def lowest(chosen: list[int]) -> np.ndarray | None:
        return _lowest(limits, [trees[i] for i in chosen], heights[chosen], least)

    chosen = list(range(len(trees)))
    found = lowest(chosen)
    weights = _heaviest(limits, trees)[0] if found is None else found  # without slack there may be none
    while True:
        kept = weights > LEAST * weights.max()
        chosen, weights = [i for i, keep in zip(chosen, kept, strict=True) if keep], weights[kept]
        # Leave out the lightest tree without which the others, no higher on average, still carry enough.
        for place in np.argsort(weights, kind="stable") if time.monotonic() < end else ():
            without = [i for k, i in enumerate(chosen) if k != place]
            other = lowest(without) if without else None
            if other is not None:
                chosen, weights = without, other
                break
        else:
            break
    trees = [trees[i] for i in chosen]
    weights, _ = _heaviest(limits, trees)  # the most that these trees carry
    kept = weights > LEAST * weights.max()
    return [tree for tree, keep in zip(trees, kept, strict=True) if keep], weights[kept]


def _heaviest(limits: Limits, trees: list[Edges]) -> tuple[np.ndarray, np.ndarray]:
    """The weights with the largest sum, and the dual values of edges and ports."""
    solved = _solve(limits.room, np.column_stack([limits.row(tree) for tree in trees]), -np.ones(len(trees)))
    if solved.status:
        raise ChoiceError(f"these links cannot be packed: {solved.message}")
    return np.maximum(solved.x, 0), np.maximum(-solved.ineqlin.marginals, 0)


def _lowest(limits: Limits, trees: list[Edges], heights: np.ndarray, least: float) -> np.ndarray | None:
    """The weights of least total height with sum `least`; None if none are found, also for programmes so near to
    infeasible that HiGHS cannot tell."""
    rows = np.column_stack([limits.row(tree) for tree in trees])
    solved = _solve(np.append(limits.room, -least), np.vstack([rows, -np.ones(len(trees))]), heights)
    return None if solved.status else np.maximum(solved.x, 0)


def _solve(room: np.ndarray, rows: np.ndarray, costs: np.ndarray) -> Any:
    """SciPy's result for weights w of least cost with rows @ w <= room."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise ChoiceError("packing trees needs SciPy: pip install 'fpna-miniapps[links]'") from None

    return linprog(costs, A_ub=rows, b_ub=room, method="highs")


def _cheapest(limits: Limits, prices: np.ndarray) -> tuple[Edges, float]:
    """A minimum spanning tree, and its price (Kruskal 1956; equal prices by capacity, the largest first)."""
    order = np.lexsort((-limits.capacity, prices))
    part = list(range(limits.vertices))

    def of(v: int) -> int:
        while part[v] != v:
            part[v] = part[part[v]]
            v = part[v]
        return v

    tree, price = [], 0.0
    for index in order:
        u, v = map(of, limits.edges[index])
        if u != v:
            part[u] = v
            tree.append(limits.edges[index])
            price += float(prices[index])
    return frozenset(tree), price


def _first(limits: Limits) -> list[Edges]:
    """Low trees to begin with: around every vertex, along edges with at least some part of the largest capacity."""
    trees: dict[Edges, None] = {}
    for part in (0.0, 0.25, 0.5, 0.8):
        for hub in range(limits.vertices):
            for turn in (1, -1):
                if tree := _around(limits, hub, part, turn):
                    trees[tree] = None
    return list(trees)


def _around(limits: Limits, hub: int, part: float, turn: int) -> Edges | None:
    """The tree of shortest paths, in edges, from a hub. Vertices are taken in ascending order, with `turn` -1 in
    descending order; each joins the vertex with fewest children."""
    near: list[list[int]] = [[] for _ in range(limits.vertices)]
    for (u, v), capacity in zip(limits.edges, limits.capacity, strict=True):
        if capacity >= part * limits.capacity.max():
            near[u].append(v)
            near[v].append(u)
    depth, below, tree = {hub: 0}, [0] * limits.vertices, []
    level = [hub]
    while level:
        reached = sorted({v for u in level for v in near[u] if v not in depth})[::turn]
        for v in reached:
            u = min(
                (u for u in near[v] if depth.get(u) == depth[level[0]]), key=lambda u: (below[u], u * turn)
            )
            below[u] += 1
            tree.append((min(u, v), max(u, v)))
        depth |= dict.fromkeys(reached, depth[level[0]] + 1)
        level = reached
    return frozenset(tree) if len(depth) == limits.vertices else None


def _rooted(vertices: int, trees: list[Edges], weights: np.ndarray) -> list[SpanningTree]:
    """The trees, heaviest first, each rooted where it is lowest; of equal ones, at the least loaded."""
    load = [0.0] * vertices
    rooted = []
    for index in np.argsort(-weights, kind="stable"):
        heights = [max(_distances(vertices, trees[index], v)) for v in range(vertices)]
        root = min(range(vertices), key=lambda v: (heights[v], load[v], v))
        load[root] += weights[index]
        share = max(1, round(float(weights[index] / weights.sum()) * WHOLE))
        rooted.append(SpanningTree(_parents(vertices, trees[index], root), share))
    return rooted


def _height(vertices: int, tree: Edges) -> int:
    """The least height over all roots."""
    return min(max(_distances(vertices, tree, root)) for root in range(vertices))


def _distances(vertices: int, tree: Edges, root: int) -> list[int]:
    parents, distances = _parents(vertices, tree, root), [0] * vertices
    for v in range(vertices):
        above = parents[v]
        while above != ROOT:
            distances[v], above = distances[v] + 1, parents[above]
    return distances


def _parents(vertices: int, tree: Edges, root: int) -> tuple[int, ...]:
    near: list[list[int]] = [[] for _ in range(vertices)]
    for u, v in tree:
        near[u].append(v)
        near[v].append(u)
    parents, todo = [ROOT] * vertices, deque([root])
    while todo:
        u = todo.popleft()
        for v in near[u]:
            if v != parents[u]:
                parents[v] = u
                todo.append(v)
    return tuple(parents)


def _digits(rate: float) -> float:
    """To six digits: more would be noise."""
    return float(f"{rate:.6g}")
