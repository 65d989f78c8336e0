"""Floating-point environments of a thread, as programs and the libraries that they load make them: rounding modes,
flushed subnormals, traps, flags. Of x86-64 with the C library of GNU."""

from __future__ import annotations

import ctypes
import platform
from contextlib import contextmanager
from dataclasses import dataclass

HERE = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
INVALID, DIVISION, OVERFLOW, UNDERFLOW, INEXACT = 0x01, 0x04, 0x08, 0x10, 0x20
ALL = INVALID | DIVISION | OVERFLOW | UNDERFLOW | INEXACT
LOUD = INVALID | DIVISION | OVERFLOW  # that programs trap; the others come with nearly every sum
ROUNDING = {"nearest": 0, "down": 1, "up": 2, "toward zero": 3}
_MATH = ctypes.CDLL("libm.so.6") if HERE else None
_Words = ctypes.c_uint32 * 8  # fenv_t: control, status and tags of the x87, ..., MXCSR


@dataclass(frozen=True)
class Environment:
    """What a thread may have chosen. `traps`, `flags`: of INVALID, DIVISION, ..."""

    rounding: str = "nearest"
    flush: bool = False
    zeros: bool = False  # of subnormal operands
    traps: int = 0
    flags: int = 0

    @property
    def control(self) -> int:
        """MXCSR without its flags."""
        mode, masks = ROUNDING[self.rounding], ALL | 0x02
        return mode << 13 | (masks & ~self.traps) << 7 | self.flush << 15 | self.zeros << 6

    @contextmanager
    def chosen(self):
        """The thread has it in here; a Left says afterwards what was found at the end."""
        words, before, left = _read(), _read(), Left()
        words[0] = words[0] & ~0xFFFF | 0x0340 | (ALL | 0x02) & ~self.traps | ROUNDING[self.rounding] << 10
        words[1] &= ~0x3F
        words[7] = self.control | self.flags
        given = ctypes.byref(words)
        back = ctypes.byref(before)
        setting = _MATH.fesetenv
        try:
            setting(given)
            yield left
        finally:
            found = _read()
            setting(back)
            left.control, left.flags = found[7] & ~0x3F, found[7] & ALL | found[1] & ALL
            left.x87 = found[0] & 0xF3F


class Left:
    """What an environment was at the end: control and flags of MXCSR, rounding and masks of the x87."""

    control = flags = x87 = 0


def _read():
    words = _Words()
    _MATH.fegetenv(ctypes.byref(words))  # masks the traps of the x87, which fesetenv sets again
    return words


def drawn(draw, traps: int = ALL) -> Environment:
    """One of all that there are, by a random.Random; of `traps` some."""
    some = sum(bit for bit in (INVALID, DIVISION, OVERFLOW, UNDERFLOW, INEXACT) if draw.random() < 0.5)
    return Environment(
        draw.choice(list(ROUNDING)), draw.random() < 0.5, draw.random() < 0.5,
        draw.choice((0, traps, some & traps)), draw.choice((0, some)),
    )  # fmt: skip


def troubles(environment: Environment, left: Left, allowed: int = 0) -> list[str]:
    """What a call that promises to leave the environment alone has changed; `allowed`: flags that it may raise."""
    found = []
    if left.control != environment.control:
        found.append(f"MXCSR {left.control:#x} in place of {environment.control:#x}")
    expected = 0x0300 | (ALL | 0x02) & ~environment.traps | ROUNDING[environment.rounding] << 10
    if left.x87 != expected:
        found.append(f"x87 {left.x87:#x} in place of {expected:#x}")
    if left.flags & ~(environment.flags | allowed):
        found.append(f"flags {left.flags:#x}, {environment.flags:#x} before")
    return found
