"""Starting MPI, and noticing when the launcher and the MPI library do not belong together."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import warnings
from typing import Any

from miniapps.errors import UsageError
from miniapps.system import environment
from miniapps.untrusted.text import tell

ADVICE = "`python -m miniapps doctor` shows what is here"
# mpi4py does not look at the one where the other is set.
LOADED = "MPI4PY_LIBMPI=/path/to/libmpi.so, MPI4PY_MPIABI unset"


def world() -> Any:
    """The communicator of all ranks, MPI started if it was not.

    Raises UsageError, in rank 0 of the launcher's count first, where mpi4py finds no library or where the
    launcher belongs to another one: then MPI either cannot start or leaves each process alone.
    """
    launched = environment.innermost()
    try:
        return _start(launched)
    except UsageError:
        if launched and launched.rank > 0:
            time.sleep(1)  # the launcher may end the job when the first process ends: rank 0 speaks first
        raise


def by_torch() -> bool:
    """Whether a launcher of torch started this process together with others."""
    launched = environment.innermost()
    return (
        launched is not None
        and launched.size > 1
        and launched.name in (environment.TORCHRUN, environment.TORCH)
    )


def of_torch() -> Any:
    """The ranks of torch's default group; None where MPI started the processes, or the group is not there yet.

    Collective over the group where it returns ranks."""
    if not by_torch() or "torch.distributed" not in sys.modules:
        return None
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    from kernels.allreduce.execution.torch_ranks import of_all

    return of_all()


class WrongLauncher(UsageError, SystemExit):
    """Ends a program that does not catch it with exit code 2: each of its processes would compute alone."""

    def __init__(self, message: str):
        super().__init__(message)
        self.code = 2


def require_launch(who: str, torch: bool = False) -> None:
    """Start MPI if it was not, and raise WrongLauncher where a launcher started several processes and each is alone.

    The first process prints why; `who` is the name of the function that the program called. `torch`: processes that a
    launcher of torch started may go on, as the group of torch serves them."""
    try:
        world()
    except UsageError as error:
        if torch and by_torch():
            return
        if speaks():
            tell(f"{who}: {error}", sys.stderr)
        raise WrongLauncher(f"{who}: {error}") from None


def speaks() -> bool:
    """Whether this process is the one to print what all of them find wrong before there is a communicator."""
    launched = environment.innermost()
    return launched is None or launched.rank == 0


def parsed(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """What the command line says. Of several ranks the first alone prints help, or what is wrong, before all end."""
    if speaks():
        return parser.parse_args(argv)
    with open(os.devnull, "w") as nowhere, contextlib.ExitStack() as silent:
        silent.enter_context(contextlib.redirect_stdout(nowhere))
        silent.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            return parser.parse_args(argv)
        except SystemExit:
            time.sleep(1)  # as in `world`
            raise


def _start(launched: environment.Launched | None) -> Any:
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            # Not at import: under a foreign launcher MPI_Init can end the process without a word of ours.
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"mpi4py cannot load an MPI library: {error}; install one (pip install mpich), "
            f"load the module of this machine's, or name one: {LOADED}. {ADVICE}"
        ) from error
    library = environment.mpi_library()
    if launched and launched.name == "Open MPI" and "MPICH" in library:
        raise UsageError(_mismatch(launched, library))
    if not MPI.Is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # mpi4py's word on what is an error below
            MPI.Init_thread()
    if launched and launched.size > 1 and MPI.COMM_WORLD.size == 1 and MPI.Comm.Get_parent() == MPI.COMM_NULL:
        if launched.name in (environment.TORCHRUN, environment.TORCH):
            raise UsageError(_not_by_torch(launched))
        raise UsageError(_mismatch(launched, library))
    return MPI.COMM_WORLD


def _mismatch(launched: environment.Launched, library: str) -> str:
    return (
        f"the launcher ({launched.name}) started {launched.size} processes, but it does not belong to the MPI "
        f"library of mpi4py, {library}, in which each process is alone. Use the mpirun of that library, or "
        f"let mpi4py load the launcher's ({LOADED}); with srun, choose --mpi. {ADVICE}"
    )


def _not_by_torch(launched: environment.Launched) -> str:
    return (
        f"{launched.name} started {launched.size} processes, and for MPI each of them is alone. Start them by mpirun, "
        f"as in mpirun -n {launched.size} python ..., and give torch's process group rank and size of MPI.COMM_WORLD "
        "(RANK, WORLD_SIZE, LOCAL_RANK). fpna.record and fpna.watch work under it, too: call "
        "torch.distributed.init_process_group before them"
    )
