"""Start MPI, and detect a launcher that does not belong to the MPI library."""

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

ADVICE = "`python -m miniapps doctor` shows the libraries and launchers of this machine"
# mpi4py ignores MPI4PY_LIBMPI if MPI4PY_MPIABI is set.
LOADED = "MPI4PY_LIBMPI=/path/to/libmpi.so, MPI4PY_MPIABI unset"


def world() -> Any:
    """The communicator of all ranks; starts MPI first if necessary.

    Raises UsageError if mpi4py finds no MPI library, or if the launcher belongs to another library: then MPI cannot
    start, or each process is alone. Rank 0 of the launcher raises it first.
    """
    launched = environment.innermost()
    try:
        return _start(launched)
    except UsageError:
        if launched and launched.rank > 0:
            time.sleep(1)  # rank 0 prints first: the launcher may end the job when the first process ends
        raise


def by_torch() -> bool:
    """Whether torch, not MPI, connects this process with others: a launcher of torch started them, or they made torch's
    default group without a launcher, as processes of torch.multiprocessing do, and those of Lightning after a fit."""
    launched = environment.innermost()
    if launched is not None and launched.size > 1:
        return launched.name in (environment.TORCHRUN, environment.TORCH)
    return _grouped() and not _several_by_mpi()


def of_torch() -> Any:
    """The ranks of torch's default group; None if MPI started the processes, or if the program has not made the group.

    Collective over the group if it returns ranks."""
    if not _grouped() or not by_torch():
        return None
    from kernels.allreduce.execution.torch_ranks import of_all

    return of_all()


def _grouped() -> bool:
    """Whether torch's default group has several processes."""
    if "torch.distributed" not in sys.modules:
        return False
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _several_by_mpi() -> bool:
    """Whether MPI runs, with several ranks."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    from mpi4py import MPI

    return bool(MPI.Is_initialized()) and not MPI.Is_finalized() and int(MPI.COMM_WORLD.size) > 1


class WrongLauncher(UsageError, SystemExit):
    """Ends a program with exit code 2 unless it catches this: each of its processes would compute alone."""

    def __init__(self, message: str):
        super().__init__(message)
        self.code = 2


def require_launch(who: str, torch: bool = False) -> None:
    """Start MPI if necessary; raise WrongLauncher if a launcher started several processes and each is alone.

    The first process prints the reason. `who`: the name of the function that the program called. `torch`: accept
    processes that a launcher of torch started, as the group of torch serves them; MPI is then not started. (Several
    processes of one rank of Slurm cannot start it.)"""
    if torch and by_torch() and not _started():
        return
    try:
        world()
    except UsageError as error:
        if torch and by_torch():
            return
        if speaks():
            tell(f"{who}: {error}", sys.stderr)
        raise WrongLauncher(f"{who}: {error}") from None


def _started() -> bool:
    """Whether MPI runs in this process, or may start. If not, importing mpi4py will not start it.

    In a process of Lightning's launcher, which has no RANK, MPI is started: Lightning imports mpi4py later and asks for
    MPI's number of ranks, which ends a process in which MPI was not started."""
    if "mpi4py.MPI" not in sys.modules:
        if "RANK" not in os.environ and "NODE_RANK" in os.environ and environment.launched() is None:
            return True
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        return False
    from mpi4py import MPI

    return bool(MPI.Is_initialized())


def speaks() -> bool:
    """Whether this process prints errors that all processes find before they have a communicator."""
    launched = environment.innermost()
    return launched is None or launched.rank == 0


def parsed(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Parses the command line. Of several ranks only the first prints help or an error, before all end."""
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
            # Not at import: under a foreign launcher MPI_Init can end the process before this module prints its advice.
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"mpi4py cannot load an MPI library: {error}; install one (pip install mpich), "
            f"load this machine's MPI module, or name a library: {LOADED}. {ADVICE}"
        ) from error
    library = environment.mpi_library()
    if launched and launched.name == "Open MPI" and "MPICH" in library:
        raise UsageError(_mismatch(launched, library))
    if not MPI.Is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # mpi4py warns about a mismatch, an error below
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
        f"as in mpirun -n {launched.size} python ..., and set RANK, WORLD_SIZE and LOCAL_RANK for torch's process "
        "group from MPI.COMM_WORLD. fpna.record, fpna.watch, fpna.accumulate, fpna.ddp_hook and "
        "fpna.fsdp_reduce_scatter also work under this launcher: call torch.distributed.init_process_group before them"
    )
