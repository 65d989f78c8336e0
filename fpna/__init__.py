"""Sums whose order is chosen, recordings that show where bits part: the suite as a library for your own programs.

    from mpi4py import MPI
    import fpna

    comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
    comm.Allreduce(rows, total, op=MPI.SUM, axis=0)         # every row, on whatever rank, is one contribution

    with fpna.record("runs/mine", comm) as r:
        r.step(1)
        r.fingerprint("density", density, block=0)

`wrap`       a communicator of mpi4py whose reductions keep a guarantee
`record`     a trace of the program, which `fpna report` and `fpna divergence` read
`watch`      a model of PyTorch records its modules, gradients and updates; `divergence` names the first that differs
`accumulate` a training of PyTorch with the same bits on any number of processes
`ddp_hook`   sums of gradients for PyTorch's DistributedDataParallel, by a chosen ordering and over a chosen wire
`fsdp_reduce_scatter`  the same for gradients of FSDP2
`fpna.torch` operators of PyTorch whose sums have a chosen order, forward and backward (`import fpna.torch`)
`manual`     a function in a model of PyTorch that gets its shards, in a step over a mesh of ranks
`load`       recorded runs as pandas frames, for `verdict`, `compare`, `variability`, `growth`, `scaling`; `timeline`
`discover`   the order in which a function adds, from its values alone; `expression` writes it down
`kernels` and `miniapps` hold the rest, and docs/tutorials/own-programs.md explains it. Names are imported when they are
used: `import fpna` starts no MPI.
"""

import sys

# `python -m` puts the current directory first on the path, and files there may hide modules of this suite. Each package
# of the suite repeats these lines before any other import, because any of them may be imported first.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
    and not sys.flags.safe_path
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from miniapps import __version__

if TYPE_CHECKING:
    from analysis.api import Difference as Difference
    from analysis.api import Verdict as Verdict
    from analysis.api import compare as compare
    from analysis.api import growth as growth
    from analysis.api import load as load
    from analysis.api import scaling as scaling
    from analysis.api import timeline as timeline
    from analysis.api import variability as variability
    from analysis.api import verdict as verdict
    from kernels.guarantees import ChoiceError as ChoiceError
    from kernels.sums.discover import NotATree as NotATree
    from kernels.sums.discover import discover as discover
    from kernels.sums.outline import outline as outline
    from kernels.tree import NoOrder as NoOrder
    from kernels.tree import expression as expression
    from miniapps.partition.manual import manual as manual
    from miniapps.programs.accumulating import Accumulated as Accumulated
    from miniapps.programs.accumulating import accumulate as accumulate
    from miniapps.programs.communicator import Communicator as Communicator
    from miniapps.programs.communicator import LayoutWarning as LayoutWarning
    from miniapps.programs.communicator import wrap as wrap
    from miniapps.programs.ddp import ddp_hook as ddp_hook
    from miniapps.programs.fsdp import Scattered as Scattered
    from miniapps.programs.fsdp import fsdp_reduce_scatter as fsdp_reduce_scatter
    from miniapps.programs.handles import HandleWarning as HandleWarning
    from miniapps.programs.recording import Recording as Recording
    from miniapps.programs.recording import record as record
    from miniapps.programs.unequal import KindsWarning as KindsWarning
    from miniapps.programs.watching import Watched as Watched
    from miniapps.programs.watching import watch as watch

HOMES = {
    "Accumulated": "miniapps.programs.accumulating",
    "ChoiceError": "kernels.guarantees",
    "Communicator": "miniapps.programs.communicator",
    "Difference": "analysis.api",
    "HandleWarning": "miniapps.programs.handles",
    "KindsWarning": "miniapps.programs.unequal",
    "LayoutWarning": "miniapps.programs.communicator",
    "NoOrder": "kernels.tree",
    "NotATree": "kernels.sums.discover",
    "Recording": "miniapps.programs.recording",
    "Scattered": "miniapps.programs.fsdp",
    "Verdict": "analysis.api",
    "Watched": "miniapps.programs.watching",
    "accumulate": "miniapps.programs.accumulating",
    "compare": "analysis.api",
    "ddp_hook": "miniapps.programs.ddp",
    "discover": "kernels.sums.discover",
    "expression": "kernels.tree",
    "fsdp_reduce_scatter": "miniapps.programs.fsdp",
    "growth": "analysis.api",
    "load": "analysis.api",
    "manual": "miniapps.partition.manual",
    "outline": "kernels.sums.outline",
    "record": "miniapps.programs.recording",
    "scaling": "analysis.api",
    "timeline": "analysis.api",
    "variability": "analysis.api",
    "verdict": "analysis.api",
    "watch": "miniapps.programs.watching",
    "wrap": "miniapps.programs.communicator",
}  # in which module each name lives

OF_TORCH = (
    "Accumulated",
    "KindsWarning",
    "Recording",
    "Scattered",
    "Watched",
    "accumulate",
    "ddp_hook",
    "fsdp_reduce_scatter",
    "record",
    "watch",
)  # which a process group of torch serves, too

__all__ = [*HOMES, "__version__"]


if not TYPE_CHECKING:  # for which any name would exist

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"fpna has no {name!r}; it has {', '.join(HOMES)}")
        if HOMES[name].startswith("miniapps.programs") and "mpi4py.MPI" not in sys.modules:
            # Before mpi4py starts MPI, which ends the process without a word of ours under a foreign launcher.
            import_module("miniapps.system.world").require_launch(f"fpna.{name}", torch=name in OF_TORCH)
        if HOMES[name].startswith("analysis"):
            lacking = [
                package for package in ("pandas", "pyarrow", "scipy", "matplotlib") if not find_spec(package)
            ]
            if lacking:
                raise ImportError(
                    f"fpna.{name} needs {', '.join(lacking)}: pip install 'fpna-miniapps[analysis]'"
                )
        return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
