"""Whether the MPI library takes arrays in GPU memory. A wrong yes ends the program, so no evidence means no."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

OFF = ("0", "false", "no", "off")
# Variables that switch GPU memory off, however the library was built.
SWITCHES = ("MPIR_CVAR_ENABLE_GPU", "OMPI_MCA_opal_cuda_support", "OMPI_MCA_mpi_cuda_support")
QUESTION = "MPIX_Query_cuda_support"
LIBRARY = re.compile(r"/lib(mpi|mpich|mpi_cray|mpi_abi)[.][^/]*$")


@cache
def gpu_aware() -> str | None:
    """Returns the setting or call that shows that mpi4py's MPI library takes GPU memory; None without any."""
    from mpi4py import MPI

    return reason(MPI.Get_library_version(), os.environ, lambda: answer(loaded()))


def reason(version: str, environment: Mapping[str, str], ask: Callable[[], bool]) -> str | None:
    """As `gpu_aware`, for a library with that version text and environment; `ask` asks the library itself."""
    if (
        "CRAY MPICH" in version.upper()
    ):  # MPI_Init ends the program if this is set and the library lacks its GPU part
        switch = "MPICH_GPU_SUPPORT_ENABLED"
        return f"{switch}=1" if environment.get(switch) == "1" else None
    if any(environment.get(name, "").lower() in OFF for name in SWITCHES):
        return None
    return f"{QUESTION}()" if ask() else None


def answer(paths: Iterable[str]) -> bool:
    """The answer of the first of these libraries that has the function QUESTION; loads no library."""
    for path in paths:
        try:
            question = getattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW), QUESTION)
        except (OSError, AttributeError):
            continue
        question.argtypes, question.restype = (), ctypes.c_int
        return question() == 1
    return False


def loaded(maps: str = "/proc/self/maps") -> list[str]:
    """Paths of the MPI libraries in this process; none if the system does not list them."""
    try:
        with open(maps) as file:
            paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in file}
    except OSError:
        return []
    return sorted(path for path in paths if LIBRARY.search(path))
