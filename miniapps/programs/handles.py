"""Packages that take the MPI handle of a communicator, in C, C++, Fortran or XLA: what becomes of a promise in them."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from importlib import metadata

PAST = (
    "{names} takes the MPI handle of a wrapped communicator to the MPI library, which adds in an order of its own: no "
    "guarantee reaches its sums. `fpna run --guarantee` adds those too (docs/tutorials/own-programs.md)"
)
# By the name that is imported, the distribution. Those that reduce floating-point numbers over a handle;
ADD = {
    "mpi4jax": "mpi4jax",
    "mpi4torch": "mpi4torch",
    "petsc4py": "petsc4py",
    "slepc4py": "slepc4py",
    "dolfinx": "fenics-dolfinx",
    "firedrake": "firedrake",
    "horovod": "horovod",
    "lammps": "lammps",
    "mumps": "PyMUMPS",
    "ngsolve": "ngsolve",
    "PyTrilinos": "PyTrilinos",
}
# those that move data over one, and add nothing;
MOVE = {"h5py": "h5py", "netCDF4": "netCDF4", "adios2": "adios2"}
# those that call mpi4py, whatever communicator they are given; what their C code takes a handle for adds nothing.
CALL = {"mpi4py_fft": "mpi4py-fft", "dedalus": "dedalus", "pylops_mpi": "pylops-mpi"}
OURS = ("kernels", "miniapps", "fpna")  # which tell communicators apart by it

taken: dict[str, str] = {}  # by whom, and how


class HandleWarning(UserWarning):
    """Sums of a package, or of other code that took the handle, go past a wrapped communicator."""


def loaded() -> list[str]:
    """Those packages of `ADD` that this process has imported, with their versions."""
    return [f"{name} {installed(name, ADD[name])}".strip() for name in ADD if name in sys.modules]


def installed(name: str, distribution: str) -> str | None:
    """The version of a package; empty where it is there without one, None where it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "" if name in sys.modules or importlib.util.find_spec(name) is not None else None


def take(method: str, module: str, stacklevel: int) -> None:
    """Note that code of `module` took the handle by `method`; warn once for each package."""
    who = "the program" if module == "__main__" else module.partition(".")[0]
    if who in (*OURS, *MOVE, *CALL) or who in taken:
        return
    taken[who] = method
    warnings.warn(PAST.format(names=f"{who} ({method})"), HandleWarning, stacklevel=stacklevel + 1)


def told() -> str:
    """Whose sums go past wrapped communicators of this process, as a trace has it: `petsc4py 3.24; solver (py2f)`."""
    return "; ".join([*loaded(), *(f"{who} ({how})" for who, how in taken.items() if who not in ADD)])
