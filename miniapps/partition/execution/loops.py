"""Writes lines that repeat, as equal layers do, as a loop: the same calls in the same order.

In a loop, a variable of an earlier line is one of four: the same in every round; of the same round; of the round
before; or an item of a list, one per round. A repetition with other variables stays as it is. An item of a list is
replaced by None after its last use, so that values live as long as in straight lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from miniapps.partition.graphs.periods import Repeat, repeats

SAVED = 32  # lines that a loop saves at least
TOKEN = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b([a-z]\d+)\b""")  # a text, or a name
ITEMS = re.compile(r"(s\d+_\d+)\[(\d+)\]")
LOCAL, SAME, CARRIED, ITEM = "of the round", "of all rounds", "of the round before", "of a list"
Column = tuple[str, ...]  # a name for each round


@dataclass(frozen=True)
class Line:
    """The line `target = text`; `uses`: the variables that it reads."""

    target: str
    text: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """A line without its names and texts, which are its `holes`; `form`: the text between them."""

    form: tuple[str, ...]
    holes: tuple[str, ...]

    def filled(self, holes: Sequence[str]) -> str:
        """The text with these names."""
        return "".join(a + b for a, b in zip(self.form, (*holes, ""), strict=True))


def pattern(text: str) -> Pattern:
    """The pattern of a line's text."""
    form, holes, at = [], [], 0
    for found in TOKEN.finditer(text):
        form.append(text[at : found.start()])
        holes.append(found[0])
        at = found.end()
    return Pattern((*form, text[at:]), tuple(holes))


@dataclass
class Loop:
    """A repetition whose variables fit. `names`: for each line of a round those in its holes; `known`: a variable of
    each round -> its name in the loop; `several`: variables that a round reads under two names. The other lines:
    `before` and `behind` the loop; by number of a line, `fetched` before it and `after` it; `ends` a round. `shown`: a
    variable -> where it is after the loop."""

    of: Repeat
    several: set[str] = field(default_factory=set)
    names: list[list[str]] = field(default_factory=list)
    known: dict[Column, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    fetched: dict[int, list[str]] = field(default_factory=dict)
    after: dict[int, list[str]] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """The number of a round."""
        return f"k{self.of.begin}"


class Text:
    """The source of `step(given, number)` from lines. `constants`: the names that are no variables; `given` holds a
    value for each of these variables; `outputs`: those that the step returns. `tables`: {name: constants or texts} of
    lists that loops read."""

    def __init__(
        self, lines: Sequence[Line], constants: Container[str], given: Sequence[str], outputs: Sequence[str]
    ):
        self.lines, self.constants, self.given, self.outputs = lines, constants, given, outputs
        self.tables: dict[str, Column] = {}
        self.numbers: dict[Column, str] = {}  # the names of the tables
        self.patterns = [pattern(line.text) for line in lines]
        self.made = {line.target: at for at, line in enumerate(lines)}
        self.place = {name: at for at, name in enumerate(given)}
        self.last: dict[str, int] = {}
        for at, line in enumerate(lines):
            self.last.update(dict.fromkeys((line.target, *line.uses), at))
        self.last.update(dict.fromkeys(outputs, len(lines)))
        self.shown: dict[str, str] = {}  # by the loops so far
        self.loops: dict[int, Loop] = {}
        forms = [(of.form, tuple(self.sort(hole) for hole in of.holes)) for of in self.patterns]
        for each in repeats(forms, SAVED):
            if (loop := self.loop(each)) is not None:
                self.loops[each.begin] = loop
                self.shown |= loop.shown

    def sort(self, hole: str) -> str:
        """A variable, a constant, or a text."""
        return "text" if hole[0] in "'\"" else "constant" if hole in self.constants else "variable"

    def alive(self, name: str, at: int) -> bool:
        """Whether a line after line `at` reads a value, or the step returns it."""
        return self.last.get(name, -1) > at

    def at(self, name: str) -> str:
        """The expression of a variable outside of loops."""
        return self.shown.get(name, name)

    def dropped(self, names: Iterable[str]) -> list[str]:
        """The lines that drop values outside of loops."""
        shown = [self.at(name) for name in names]
        local = ", ".join(each for each in shown if "[" not in each)
        return [f"{each} = None" for each in shown if "[" in each] + ([f"del {local}"] if local else [])

    # ---- one loop

    def loop(self, of: Repeat) -> Loop | None:
        """The loop of a repetition; None if its variables do not fit."""
        columns: list[list[Column]] = []
        uses: dict[Column, list[int]] = {}
        for o in range(of.period):
            rows = [self.patterns[of.begin + k * of.period + o].holes for k in range(of.count)]
            columns.append(list(zip(*rows, strict=True)))
            for names in columns[-1]:
                if self.sort(names[0]) == "variable":
                    uses.setdefault(names, []).append(o)
        kinds: dict[Column, tuple[str, int]] = {}
        for names in uses:
            if (found := self.kind(of, names)) is None:
                return None
            kinds[names] = found
        counts = Counter(name for names in uses for name in set(names))
        loop = Loop(of, {name for name, n in counts.items() if n > 1})
        carried: dict[int, list[str]] = {}
        for names, (kind, made) in kinds.items():
            name = loop.known[names] = f"x{of.begin}_{len(loop.known)}"
            if kind == LOCAL:
                loop.known[names] = self.lines[of.begin + made].target
            elif kind == SAME:
                loop.known[names] = self.at(names[0])
                if not self.alive(names[0], of.end - 1) and names[0] not in self.place:
                    loop.behind += self.dropped(names[:1])
            elif kind == ITEM:
                self.item(loop, names, name, uses[names])
            else:
                self.carry(loop, names[0], name, uses[names][-1])
                carried.setdefault(made, []).append(name)
        for o, column in enumerate(columns):
            loop.names.append([loop.known.get(names) or self.constant_of(loop, names) for names in column])
            targets = tuple(self.lines[of.begin + k * of.period + o].target for k in range(of.count))
            self.leave(loop, o, targets, max(uses.get(targets, [o])), carried.get(o, []))
        return loop

    def kind(self, of: Repeat, names: Column) -> tuple[str, int] | None:
        """How the rounds get a variable, and which line of a round makes it; None if in no way that a loop has."""
        made = [self.made.get(name, -1) for name in names]
        own = [at - of.begin - k * of.period for k, at in enumerate(made)]
        if len(set(own)) == 1 and 0 <= own[0] < of.period:
            return LOCAL, own[0]
        if all(at < of.begin for at in made):
            return (SAME if len(set(names)) == 1 else ITEM), -1
        before = {at + of.period for at in own[1:]}
        if made[0] < of.begin and len(before) == 1 and 0 <= min(before) < of.period:
            return CARRIED, min(before)
        return None

    def item(self, loop: Loop, names: Column, name: str, uses: Sequence[int]) -> None:
        """Fetch an item of a list in each round before its first use, and drop it after its last one."""
        of, places = loop.of, [self.place.get(each, -1) for each in names]
        ends = (of.begin + (k + 1) * of.period - 1 for k in range(of.count))
        alone = len(set(names)) == len(names) and loop.several.isdisjoint(names)
        later = [each for each, end in zip(names, ends, strict=True) if self.alive(each, end)]
        gone = alone and len(later) < of.count
        listed: list[str] = []
        found = [ITEMS.fullmatch(self.at(each)) for each in names]
        items = [(each[1], int(each[2])) for each in found if each]
        steps = strided([at for _, at in items]) if len({kept for kept, _ in items}) == 1 else None
        if min(places) >= 0:
            steps, gone = strided(places), False
            at = place(*steps, loop.index) if steps else self.numbered(loop, tuple(map(str, places)))
            text = f"given[{at}]"
        elif steps and len(items) == of.count:
            text = f"{items[0][0]}[{place(*steps, loop.index)}]"
        else:
            text = f"l{name[1:]}[{loop.index}]"
            loop.before.append(f"l{name[1:]} = [{', '.join(map(self.at, names))}]")
            loop.behind.append(f"del l{name[1:]}")
            listed = [each for each in names if each not in self.place]
        loop.fetched.setdefault(uses[0], []).append(f"{name} = {text}")
        if gone:
            loop.fetched[uses[0]].append(f"{text} = None")
            drops = self.dropped(listed)
            for number, each in enumerate(later):  # which a later line reads
                loop.before.append(f"y{name[1:]}_{number} = {self.at(each)}")
                loop.shown[each] = f"y{name[1:]}_{number}"
            loop.before += drops
        loop.after.setdefault(uses[-1], []).append(f"del {name}")

    def carry(self, loop: Loop, first: str, name: str, last: int) -> None:
        """Begin with a value from before the loop; a round drops it after its `last` line, and ends with the next."""
        loop.before.append(f"{name} = {self.at(first)}")
        alone = first not in loop.several and first not in self.place
        if alone and not self.alive(first, loop.of.begin + loop.of.period - 1):
            loop.before += self.dropped([first])
        loop.after.setdefault(last, []).append(f"del {name}")
        loop.behind.append(f"del {name}")

    def leave(self, loop: Loop, o: int, targets: Column, last: int, carried: Sequence[str]) -> None:
        """Keep the results of line `o` that later lines read; drop the others after the `last` line of a round."""
        local, later = targets[0], [name for name in targets if self.alive(name, loop.of.end - 1)]
        loop.ends += [f"{name} = {local}" for name in carried]
        if later == [targets[-1]]:
            loop.shown[targets[-1]] = local
            return
        if later:
            kept = f"s{loop.of.begin}_{o}"
            loop.before.append(f"{kept} = []")
            loop.after.setdefault(o, []).insert(0, f"{kept}.append({local})")
            loop.shown.update((name, f"{kept}[{k}]") for k, name in enumerate(targets))
        if carried:
            loop.ends.append(f"del {local}")
        else:
            loop.after.setdefault(last, []).append(f"del {local}")

    def constant_of(self, loop: Loop, names: Column) -> str:
        """A constant or a text, which may be another one in each round."""
        return names[0] if len(set(names)) == 1 else self.numbered(loop, names)

    def numbered(self, loop: Loop, names: Column) -> str:
        """The round's item of a table."""
        table = self.numbers.setdefault(names, f"q{len(self.numbers)}")
        self.tables[table] = names
        return f"{table}[{loop.index}]"

    # ---- the whole text

    def text(self) -> str:
        """The source."""
        body: list[str] = []
        at, self.shown = 0, {}
        while at < len(self.lines):
            if (loop := self.loops.get(at)) is not None:
                body += self.lines_of(loop)
                self.shown |= loop.shown
                at = loop.of.end
                continue
            line, of = self.lines[at], self.patterns[at]
            body.append(f"{line.target} = {of.filled([self.at(hole) for hole in of.holes])}")
            known = dict.fromkeys((line.target, *line.uses))
            body += self.dropped(n for n in known if n not in self.constants and not self.alive(n, at))
            at += 1
        body.append(f"return ({''.join(self.at(name) + ', ' for name in self.outputs)})")
        words = set(TOKEN.findall("\n".join(body)))
        read = [name for name in self.given if ("", name) in words]
        if read:
            values = (
                "given"
                if read == list(self.given)
                else f"{', '.join(f'given[{self.place[n]}]' for n in read)},"
            )
            body.insert(0, f"{', '.join(read)}, = {values}")
        return "\n".join(["def step(given, number):", *("    " + line for line in body)]) + "\n"

    def lines_of(self, loop: Loop) -> list[str]:
        """A loop with the lines around it."""
        of, inside = loop.of, []
        for o, names in enumerate(loop.names):
            at = of.begin + o
            inside += loop.fetched.get(o, [])
            inside.append(f"{self.lines[at].target} = {self.patterns[at].filled(names)}")
            inside += loop.after.get(o, [])
        inside = joined([*inside, *loop.ends])
        head = f"for {loop.index} in range({of.count}):"
        return [*loop.before, head, *("    " + line for line in inside), *loop.behind]


def joined(lines: Iterable[str]) -> list[str]:
    """The lines, with one `del` in place of several in a row."""
    found: list[str] = []
    for line in lines:
        if line.startswith("del ") and found and found[-1].startswith("del "):
            found[-1] += f", {line.removeprefix('del ')}"
        else:
            found.append(line)
    return found


def strided(places: Sequence[int]) -> tuple[int, int] | None:
    """(first, step) of places that are evenly apart; None for others."""
    steps = {b - a for a, b in pairwise(places)}
    return (places[0], steps.pop()) if len(steps) == 1 else None


def place(first: int, step: int, index: str) -> str:
    """The place in a list in the round `index`."""
    return f"{first} {'-' if step < 0 else '+'} {index if abs(step) == 1 else f'{abs(step)} * {index}'}"
