"""Who sends what over a wire of two levels: one codec inside groups of contributions, another for the sums of groups.

Contributions have numbers: those of their blocks or, added by rank beforehand, of their ranks. `group` consecutive
numbers are a group, so that the bits follow the numbers and not the ranks. Four steps, each in one round of messages:

    inside      a rank sends its contributions to the members of their groups: each member adds a part of the cells
    across      a member sends parts of its sum to their owners, who add the sums of groups
    back        an owner sends parts of the total to one member of each team
    onward      a member passes its part on to its team

The members of a group are the ranks with contributions to it. A team is the ranks whose first contribution is of one
group. Ranks of a node that have whole groups send one sum per group to other nodes, and get one total.
(Two levels: Jia et al. 2024, SDP4Bit, arXiv 2410.15526, by ranks of a node. Groups of blocks are of this suite.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.allreduce.schedule import evenly

Range = tuple[int, int]  # cells [first, stop)
ROUNDS = 4  # of messages


@dataclass(frozen=True)
class Levels:
    """The messages of one all-reduce of `cells` cells. `numbers`: of the contributions of every rank, ascending."""

    numbers: Sequence[Sequence[int]]
    group: int
    cells: int

    @cached_property
    def own(self) -> list[dict[int, list[int]]]:
        """Of every rank, the numbers of its contributions to each group, both ascending."""
        found: list[dict[int, list[int]]] = []
        for numbers in self.numbers:
            found.append({})
            for number in numbers:
                found[-1].setdefault(number // self.group, []).append(number)
        return found

    @cached_property
    def _members(self) -> dict[int, dict[int, int]]:
        """By group: its members, ascending, and their places."""
        found: dict[int, dict[int, int]] = {}
        for rank, groups in enumerate(self.own):
            for group in groups:
                found.setdefault(group, {})[rank] = len(found.get(group, ()))
        return dict(sorted(found.items()))

    @cached_property
    def _teams(self) -> dict[int, dict[int, int]]:
        found: dict[int, dict[int, int]] = {}
        for rank in range(len(self.own)):
            team = found.setdefault(self._of_team(rank), {})
            team[rank] = len(team)
        return found

    def _of_team(self, rank: int) -> int:
        return min(self.own[rank], default=-1)

    def part(self, group: int, rank: int) -> Range:
        """The cells of a group's sum that a member adds."""
        members = self._members[group]
        return evenly(self.cells, len(members), members[rank])

    def owned(self, rank: int) -> Range:
        """The cells of the total that a rank adds."""
        return evenly(self.cells, len(self.numbers), rank)

    def passed_on(self, rank: int) -> Range:
        """The cells of the total that a rank passes on to its team."""
        team = self._teams[self._of_team(rank)]
        return evenly(self.cells, len(team), team[rank])

    def inside(self, sender: int, receiver: int) -> Iterator[tuple[int, int, Range]]:
        """(group, number, cells) of the contributions that a rank encodes for another, or for itself."""
        for group, numbers in self.own[sender].items():
            if group in self.own[receiver]:
                for number in numbers:
                    yield group, number, self.part(group, receiver)

    def across(self, sender: int, receiver: int) -> Iterator[tuple[int, int, Range]]:
        """(group, group, cells) of the sums of groups that a rank encodes for another, or for itself."""
        for group in self.own[sender]:
            first, stop = _common(self.part(group, sender), self.owned(receiver))
            if first < stop:
                yield group, group, (first, stop)

    def back(self, sender: int, receiver: int) -> Range:
        """The cells of the total that an owner sends to a rank, maybe none."""
        return _common(self.owned(sender), self.passed_on(receiver))

    def onward(self, sender: int, receiver: int) -> Range:
        """The cells of the total that a rank passes on to another, maybe none."""
        first, stop = self.passed_on(sender)
        return first, stop if self._of_team(sender) == self._of_team(receiver) else first


def _common(a: Range, b: Range) -> Range:
    first = max(a[0], b[0])
    return first, max(first, min(a[1], b[1]))
