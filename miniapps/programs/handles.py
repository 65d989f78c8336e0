"""Packages that take the MPI handle of a communicator, in C, C++, Fortran or XLA, and so bypass its guarantee."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from importlib import metadata

PAST = (
    "{names} takes the MPI handle of a wrapped communicator, so its sums bypass the guarantee: the MPI library adds "
    "them in its own order. `fpna run --guarantee` also reaches such sums (docs/tutorials/own-programs.md)"
)
# {imported name: distribution} of packages that reduce floating-point numbers over a handle;
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
# of packages that only move data over a handle;
MOVE = {"h5py": "h5py", "netCDF4": "netCDF4", "adios2": "adios2"}
# of packages that call mpi4py with any communicator; their C code uses the handle without adding.
CALL = {"mpi4py_fft": "mpi4py-fft", "dedalus": "dedalus", "pylops_mpi": "pylops-mpi"}
OURS = ("kernels", "miniapps", "fpna")  # they identify communicators by the handle

taken: dict[str, str] = {}  # {package: method} that took a handle


class HandleWarning(UserWarning):
    """A package or other code took the handle; its sums bypass the wrapped communicator."""


def loaded() -> list[str]:
    """The imported packages of `ADD`, with their versions."""
    return [f"{name} {installed(name, ADD[name])}".strip() for name in ADD if name in sys.modules]


def installed(name: str, distribution: str) -> str | None:
    """The version of a package; empty if it has none, None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "" if name in sys.modules or importlib.util.find_spec(name) is not None else None


def take(method: str, module: str, stacklevel: int) -> None:
    """Note that code of `module` took the handle by `method`; warns once for each package."""
    who = "the program" if module == "__main__" else module.partition(".")[0]
    if who in (*OURS, *MOVE, *CALL) or who in taken:
        return
    taken[who] = method
    warnings.warn(PAST.format(names=f"{who} ({method})"), HandleWarning, stacklevel=stacklevel + 1)


def told() -> str:
    """The code whose sums bypass wrapped communicators, for the trace: `petsc4py 3.24; solver (py2f)`."""
    return "; ".join([*loaded(), *(f"{who} ({how})" for who, how in taken.items() if who not in ADD)])
