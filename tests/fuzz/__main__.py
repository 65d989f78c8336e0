"""The command line of the fuzzer: see tests/fuzz/__init__.py."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.fuzz.kinds import KINDS
from tests.fuzz.pool import play

SHOWN = 500  # characters of the end of what a violation says; --case shows all


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, help="for so long")
    options.add_argument("--cases", type=int, help="so many (1000, where no time is given either)")
    options.add_argument("--seed", type=int, help="of the first case of each kind; others follow (drawn)")
    options.add_argument("--kind", help=f"of {', '.join(KINDS)}, separated by commas (all)")
    options.add_argument("--jobs", type=int, default=1, help="workers (1)")
    options.add_argument(
        "--case", action="append", metavar="KIND:SEED", help="this one alone, with all that was said"
    )
    return options


def main(argv: list[str] | None = None) -> int:
    """Play; 0 if no case broke the criterion."""
    options = parser().parse_args(argv)
    if options.case:
        cases = iter([(kind, int(seed)) for kind, _, seed in (case.partition(":") for case in options.case)])
    else:
        chosen = options.kind.split(",") if options.kind else [kind for kind in KINDS if KINDS[kind].weight]
        if unknown := [kind for kind in chosen if kind not in KINDS]:
            parser().error(f"no kind {unknown[0]}; there are {', '.join(KINDS)}")
        first = random.randrange(10**9) if options.seed is None else options.seed
        print(f"seeds from {first}", flush=True)
        cases = drawn(chosen, first, options.cases, options.minutes)
    tally = Tally(bool(options.case))
    play(cases, options.jobs, tally.hear)
    print(tally.text())
    return 1 if tally.violations else 0


def drawn(
    kinds: list[str], first: int, count: int | None, minutes: float | None
) -> Iterator[tuple[str, int]]:
    """(kind, seed) of so many cases, or for so long; each kind as often as its weight says."""
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    rng = random.Random(first)
    numbers = itertools.count(first)
    for _ in range(count or (10**12 if minutes else 1000)):
        if time.monotonic() > end:
            return
        yield rng.choices(kinds, [KINDS[kind].weight for kind in kinds])[0], next(numbers)


class Tally:
    """What came of the cases."""

    def __init__(self, verbose: bool = False):
        self.verbose, self.begin = verbose, time.monotonic()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.violations: list[dict[str, Any]] = []
        self.inputs = 0  # damaged ones that were drawn: some cases draw many
        self.worst = (0, "")  # bytes of memory, and the case that took most

    def hear(self, answer: dict[str, Any]) -> None:
        """Count one, and say what broke the criterion at once."""
        word = "VIOLATION" if answer["violated"] else answer["outcome"]
        self.outcomes[answer["kind"], word] += 1
        self.inputs += answer.get("inputs", 1)
        self.worst = max(self.worst, (answer.get("taken", 0), f"{answer['kind']}:{answer['seed']}"))
        if self.verbose:
            print("\n".join(map(ascii, answer["done"])), f"\n{word}", answer["violated"], flush=True)
        if answer["violated"]:
            self.violations.append(answer)
            print(f"{answer['kind']}:{answer['seed']} {json.dumps(answer['violated'][-SHOWN:])}", flush=True)
        if sum(self.outcomes.values()) % 1000 == 0:
            print(self.text(), file=sys.stderr, flush=True)

    def text(self) -> str:
        """Counts by kind and outcome."""
        seconds = time.monotonic() - self.begin
        total = sum(self.outcomes.values())
        done = f"{total} cases, {self.inputs} damaged inputs, in {seconds:.0f} s"
        lines = [f"{done}, {len(self.violations)} broke the criterion"]
        lines += [f"  most memory: {self.worst[0] / 2**20:.0f} MiB, {self.worst[1]}"]
        for kind in sorted({kind for kind, _ in self.outcomes}):
            words = ", ".join(f"{n} {word}" for (of, word), n in sorted(self.outcomes.items()) if of == kind)
            lines.append(f"  {kind}: {words}")
        return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
