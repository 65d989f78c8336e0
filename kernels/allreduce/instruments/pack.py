"""Spanning trees packed into measured links by linear programmes, which SciPy's HiGHS solves.

An all-reduce along a tree sends a sum up each edge and a total down it, so that a tree of weight w takes w of an edge
in both directions, and of a port w for every edge that leaves its vertices. The largest sum of weights is the rate at
which a vector can be reduced along trees:

    maximise the sum of w[T] over all spanning trees T, such that
        the weights of the trees with edge e add up to its capacity at the most,
        the weights of the trees, times how many of their edges pass port g, to its rate at the most.

Without ports this is the fractional packing of Tutte and Nash-Williams (1961): the least capacity between the parts
of a partition, divided by their number less one. With a port for every vertex, all of one rate b, it is b m / (2 (m -
1)) of m vertices: each sends and receives 2 (m - 1) / m of the vector, which is what any all-reduce must.

There are too many trees to write down. A few make the programme; its dual values are prices of edges and ports, and
the cheapest tree at these, a minimum spanning tree, joins them until there is none that costs less than 1 (column
generation, Gilmore and Gomory 1961). Dual values divided by the price of the cheapest tree bound every packing.

Of the packings that reach nearly as much, `slack` less, one of low and few trees is taken: every level is a message
in a row, every tree a message more. (Wang et al. 2020, Blink, do so by an integer programme.)
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
GAP = 1e-6  # between rate and bound, of these, at which trees are no longer looked for
LONGEST_S = 60.0  # of looking for more trees, and then for fewer: what is found by then is taken
LEAST = 1e-9  # of the largest weight: less is none

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
        """What a tree of weight 1 takes of every edge and port."""
        taken = np.array([edge in tree for edge in self.edges], float)
        return np.concatenate([taken, self.passes @ taken])

    @property
    def room(self) -> np.ndarray:
        """What there is of every edge and port."""
        return np.concatenate([self.capacity, self.rate])

    def prices(self, dual: np.ndarray) -> np.ndarray:
        """Of every edge, with what its ports cost."""
        count = len(self.edges)
        return dual[:count] + self.passes.T @ dual[count:]


def pack(links: Links, slack: float = SLACK) -> Linked:
    """Trees whose weights carry at least 1 - `slack` of the most that trees over these links can.

    Raises ChoiceError where SciPy is not installed.
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
    """Bytes of a vector per second that a packing carries over links: its shares, as large as the fullest edge or port
    allows. Infinite for one vertex."""
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
    """Trees that reach the largest sum of weights, this sum, and a bound on that of any trees."""
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
    """Of `trees` low and few ones, with weights of at least `least` together."""
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
    weights, _ = _heaviest(limits, trees)  # these carry what they can
    kept = weights > LEAST * weights.max()
    return [tree for tree, keep in zip(trees, kept, strict=True) if keep], weights[kept]


def _heaviest(limits: Limits, trees: list[Edges]) -> tuple[np.ndarray, np.ndarray]:
    """Weights whose sum is largest, and the dual values of edges and ports."""
    solved = _solve(limits.room, np.column_stack([limits.row(tree) for tree in trees]), -np.ones(len(trees)))
    if solved.status:
        raise ChoiceError(f"these links cannot be packed: {solved.message}")
    return np.maximum(solved.x, 0), np.maximum(-solved.ineqlin.marginals, 0)


def _lowest(limits: Limits, trees: list[Edges], heights: np.ndarray, least: float) -> np.ndarray | None:
    """Weights of least height together that add up to `least`; None where none are found, which includes programmes so
    near to infeasible that HiGHS cannot tell."""
    rows = np.column_stack([limits.row(tree) for tree in trees])
    solved = _solve(np.append(limits.room, -least), np.vstack([rows, -np.ones(len(trees))]), heights)
    return None if solved.status else np.maximum(solved.x, 0)


def _solve(room: np.ndarray, rows: np.ndarray, costs: np.ndarray) -> Any:
    """What SciPy says of weights w of least cost with rows @ w <= room."""
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
    """Low trees to begin with: around every vertex, by edges of at least some part of the largest capacity."""
    trees: dict[Edges, None] = {}
    for part in (0.0, 0.25, 0.5, 0.8):
        for hub in range(limits.vertices):
            for turn in (1, -1):
                if tree := _around(limits, hub, part, turn):
                    trees[tree] = None
    return list(trees)


def _around(limits: Limits, hub: int, part: float, turn: int) -> Edges | None:
    """The tree of shortest ways, in edges, from a hub; vertices are taken in ascending order, or with `turn` -1
    descending, and each is led to the one that has fewest below it."""
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
    """The trees, heaviest first, with a root from which they are lowest: of two such the one that roots less."""
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
    """From the vertex from which it is lowest."""
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
    """To six digits: more say nothing."""
    return float(f"{rate:.6g}")
