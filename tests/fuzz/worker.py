"""Runs cases one after the other: reads a line `KIND SEED`, writes a line of JSON."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.fuzz import sandbox
from tests.fuzz.sandbox import Violation

ADDRESSES = 8 * 2**30  # bytes of address space of a worker, which those that it starts inherit


def main() -> None:
    """Until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    place = Path(sys.argv[1])
    answers = os.fdopen(sandbox.capture_streams(), "w")
    lines = os.fdopen(os.dup(0), "r")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tempfile.tempdir = str(place / "tmp")  # sockets of other processes, and nothing of a case
    os.environ["TMPDIR"] = tempfile.tempdir
    (place / "tmp").mkdir(parents=True)
    player = Player(place)
    for line in lines:
        kind, seed = line.split()
        json.dump(player.play(kind, int(seed)), answers)
        print(file=answers, flush=True)


class Player:
    """What a worker needs for cases, made when the first one of a kind asks for it."""

    def __init__(self, place: Path):
        from tests.fuzz.base import Base

        self.place = place
        self.sees_reading = sandbox.notices_reading(place)
        self.base = Base(place, place / "case")

    def play(self, kind: str, seed: int) -> dict[str, Any]:
        """The case: `outcome` in a word, or what was `violated`; `done`: what was done and said."""
        from tests.fuzz.kinds import KINDS

        violated = outcome = ""
        try:
            outcome = KINDS[kind].play(random.Random(f"{kind}:{seed}"), self.base)
        except Violation as error:
            violated = str(error)
        except BaseException as error:
            violated = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        finally:
            signal.alarm(0)
            os.chdir(self.place)
        return {"kind": kind, "seed": seed, "outcome": outcome, "violated": violated,
                "done": sandbox.latest.done if sandbox.latest else [],
                "inputs": sandbox.latest.inputs if sandbox.latest else 1,
                "taken": sandbox.latest.taken if sandbox.latest else 0}  # fmt: skip


if __name__ == "__main__":
    main()
