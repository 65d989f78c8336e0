"""A kind that breaks the criterion on purpose, to prove that the fuzzer notices; the seed chooses how."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time

from tests.fuzz.base import Base
from tests.fuzz.sandbox import SECRET, fresh

# What hangs comes behind an answer: the first case of a worker has minutes.
HOW = (
    "nothing", "hangs", "raises", "dies", "takes memory", "reads outside", "writes outside", "removes outside",
    "writes into a run", "writes where it works", "repeats what is outside", "prints control characters",
    "prints a traceback", "writes what is outside",
)  # fmt: skip


def broken(rng: random.Random, base: Base) -> str:
    """Break the criterion in the way that one of HOW says, drawn by the seed."""
    how = rng.choice(HOW)
    box = fresh(base.case)
    base.copy(box, "a")
    outside = box.outside / "secret.txt"
    with box.watched():
        if how == "raises":
            raise RuntimeError("a defect")
        if how == "dies":
            os._exit(3)
        if how == "hangs":
            time.sleep(10_000)
        if how == "takes memory":
            bytearray(2**31)[::4096] = b"x" * 2**19
        if how == "reads outside":
            outside.read_bytes()
        if how == "writes outside":
            (box.outside / "kept" / "more").touch()
        if how == "removes outside":
            shutil.rmtree(box.outside / "kept")
        if how == "writes into a run":
            (box.runs / "a" / "more").touch()
        if how == "writes where it works":
            (box.work / "more").touch()
        if how == "writes what is outside":
            (box.out / "page.html").write_text(SECRET)
        texts = {"repeats what is outside": SECRET, "prints control characters": "\x1b[31m",
                 "prints a traceback": "Traceback (most recent call last):"}  # fmt: skip
        box.say(lambda: print(texts.get(how, ""), file=sys.stderr))
    return how
