"""Libraries and programs that choose code by the processor without a setting that holds them.

Three signs in a file: its name is known; it takes `matmul` from libgfortran, which has versions of it; or it executes
`cpuid`, as do functions of which a compiler made versions (target_clones).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterable
from functools import cache

from miniapps.system.layers import of_file
from miniapps.untrusted.regular import Refused, open_regular

# By the beginning of file names. They have no setting, or one that depends on the program.
KNOWN = {
    "libfftw3": "FFTW", "libatlas": "ATLAS", "libarmpl": "Arm Performance Libraries", "libsvml": "Intel's SVML",
    "libimf": "Intel's libm", "libamdlibm": "AMD's libm", "libalm": "AMD's libm", "libxsmm": "LIBXSMM",
    "libsleef": "SLEEF", "libllvmlite": "Numba", "xla_extension": "XLA", "libjulia-codegen": "Julia",
}  # fmt: skip
# Of the C, C++ and Fortran implementation: what they choose changes no number, but for matmul.
IMPLEMENTATION = (
    "ld-linux", "libc.", "libc-", "libdl", "libpthread", "librt", "libutil", "libgcc_s", "libstdc++", "libgomp",
    "libgfortran", "libquadmath", "asked-",
)  # fmt: skip
# A number moved to eax, or ecx or eax cleared, and cpuid: as compilers write it. The two bytes of cpuid alone also
# occur by chance.
CPUID = re.compile(rb"(?:\xb8.\x00\x00[\x00\x80]|\x31\xc9|\x31\xc0)\x0f\xa2", re.DOTALL)
MATMUL = b"_gfortran_matmul_"
MOST = 2**32  # bytes of a file


def unheld(loaded: Iterable[str], programs: Iterable[str]) -> tuple[list[str], list[str]]:
    """(what chooses code for numbers and no setting holds, other files that ask the processor). `loaded`, `programs`:
    paths of libraries and of executables."""
    programs = set(programs)
    numbers, others = set(), set()
    for path in {*loaded, *programs}:
        name = os.path.basename(path)
        if title := next((title for begin, title in KNOWN.items() if name.startswith(begin)), ""):
            numbers.add(f"{title} ({name})")
        elif not name.startswith(IMPLEMENTATION):
            matmul, asks = _signs(path)
            if matmul:
                numbers.add(f"matmul of libgfortran (called in {name})")
            if asks and path in programs:
                numbers.add(f"the program itself ({name})")
            elif asks and not of_file(name):
                others.add(name)
    return sorted(numbers), sorted(others)


@cache
def _signs(path: str) -> tuple[bool, bool]:
    """Whether a file takes `matmul` from libgfortran, and whether it executes `cpuid`."""
    with (
        contextlib.suppress(OSError, Refused, ValueError),
        open_regular(path, MOST, links=True) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
    ):
        return text.find(MATMUL) >= 0, bool(CPUID.search(text))
    return False, False
