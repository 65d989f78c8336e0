"""Whether the MPI library takes arrays that lie in GPU memory. A wrong yes ends the program, so silence means no."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

OFF = ("0", "false", "no", "off")
# By which libraries are told not to, whatever they were built with.
SWITCHES = ("MPIR_CVAR_ENABLE_GPU", "OMPI_MCA_opal_cuda_support", "OMPI_MCA_mpi_cuda_support")
QUESTION = "MPIX_Query_cuda_support"
LIBRARY = re.compile(r"/lib(mpi|mpich|mpi_cray|mpi_abi)[.][^/]*$")


@cache
def gpu_aware() -> str | None:
    """What says that the library which mpi4py has loaded takes GPU memory; None where nothing does."""
    from mpi4py import MPI

    return reason(MPI.Get_library_version(), os.environ, lambda: answer(loaded()))


def reason(version: str, environment: Mapping[str, str], ask: Callable[[], bool]) -> str | None:
    """As `gpu_aware`, of a library of that version text; `ask` puts the question to the library itself."""
    if (
        "CRAY MPICH" in version.upper()
    ):  # ends in MPI_Init where this is set and the library lacks its GPU part
        switch = "MPICH_GPU_SUPPORT_ENABLED"
        return f"{switch}=1" if environment.get(switch) == "1" else None
    if any(environment.get(name, "").lower() in OFF for name in SWITCHES):
        return None
    return f"{QUESTION}()" if ask() else None


def answer(paths: Iterable[str]) -> bool:
    """What the first of these libraries that knows the question says; nothing is loaded that was not."""
    for path in paths:
        try:
            question = getattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW), QUESTION)
        except (OSError, AttributeError):
            continue
        question.argtypes, question.restype = (), ctypes.c_int
        return question() == 1
    return False


def loaded(maps: str = "/proc/self/maps") -> list[str]:
    """Paths of the MPI libraries in this process; none where the system does not tell."""
    try:
        with open(maps) as file:
            paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in file}
    except OSError:
        return []
    return sorted(path for path in paths if LIBRARY.search(path))
