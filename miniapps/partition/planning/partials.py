"""Places the reductions of partial sums: as late as their readers allow.

A partial value may pass through an operation that is linear in it (a sum of partials, a transpose, a scale), and is
reduced before any other reader. So the gradients of q, k and v for their common input are added first, and reduced
once. A value with several readers is reduced before all of them; otherwise each would need its own reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from miniapps.partition.cuts.axes import Cut
from miniapps.partition.planning.decide import Decision
from miniapps.partition.rules.project import Axes

Partial = tuple[tuple[str, ...], str]  # axes, and the operation that combines partials


def place(
    decisions: Sequence[Decision], outputs: Sequence[str], axes: Axes
) -> tuple[dict[str, Partial], set[str]]:
    """Returns (partial values, the values among them that are reduced before their readers)."""
    readers = Counter(outputs)
    for decision in decisions:
        readers.update({tensor.name for tensor in decision.ruled.read})
    partial: dict[str, Partial] = {}
    cuts: dict[str, Cut] = {}
    reduced: set[str] = set()
    for decision in decisions:
        given = {
            k: tensor.name
            for k, tensor in enumerate(decision.ruled.read)
            if tensor.name in partial and tensor.name not in reduced
        }
        inherited: tuple[str, ...] = ()
        if given:
            kinds = {partial[name] for name in given.values()}
            as_cut = all(decision.needs[k] == cuts[name] for k, name in given.items())
            if as_cut and takes(decision, frozenset(given), kinds, axes):
                ((inherited, _),) = kinds
            else:
                reduced.update(given.values())
        made = decision.ruled.made
        for tensor, cut, fresh in zip(made, decision.gives, decision.fresh, strict=True):
            if inherited or fresh:
                cuts[tensor.name] = cut
                partial[tensor.name] = axes.ordered((*inherited, *fresh)), decision.ruled.rule.combine
                if readers[tensor.name] > 1:
                    reduced.add(tensor.name)
    return partial, reduced | (partial.keys() & set(outputs))


def takes(decision: Decision, given: frozenset[int], kinds: set[Partial], axes: Axes) -> bool:
    """Whether an operation is linear in its partial operands, which have one kind, and is not cut by their axes."""
    if given not in decision.ruled.rule.linear or len(kinds) > 1:
        return False
    ((names, combine),) = kinds
    slots = {axes.slots[name] for name in names}
    return combine == decision.ruled.rule.combine == "sum" and not slots & {
        axes.slots[axis] for axis in decision.axes()
    }
