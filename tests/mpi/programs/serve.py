"""Ranks that stay: each run that a test asks for has a communicator of its own (tests/ranks.py).

`mpirun -n P python serve.py FOLDER`: rank R reads requests, one JSON object per line, from the pipe FOLDER/R. A request
goes to the ranks below its number of ranks alone; rank 0 writes FOLDER/answer. The end of a pipe ends its rank.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from importlib import import_module
from pathlib import Path

from mpi4py import MPI

from miniapps.runner.main import main
from miniapps.system.environment import LAUNCHERS

WORLD = MPI.COMM_WORLD
PROGRAMS = Path(__file__).parent


class Shown(io.StringIO):
    """What is kept for the answer, and shown at once: a rank that aborts the job gives no answer."""

    def write(self, text):
        sys.__stderr__.write(text)
        return super().write(text)


def call(argv, comm):
    """What `python argv...` does, its ranks those of `comm`; returns the exit code."""
    module = import_module(argv[1]) if argv[0] == "-m" else None
    if hasattr(module, "APP"):
        return main(module.APP, argv[2:], comm)
    for name in [name for name in sys.modules if (PROGRAMS / f"{name}.py").exists()]:
        del sys.modules[name]  # it has seen another communicator
    launched = {size: os.environ[size] for _, size, _ in LAUNCHERS if size in os.environ}
    try:
        os.environ.update(dict.fromkeys(launched, str(comm.size)))  # as a launcher of so many ranks says
        MPI.COMM_WORLD = comm
        if module:
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__")
        else:
            sys.argv = argv
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        MPI.COMM_WORLD = WORLD
        os.environ.update(launched)
    return 0


def serve(folder):
    """Carry out requests until there are no more."""
    first = {}  # communicators of the first n ranks
    for line in (folder / str(WORLD.rank)).open():
        request = json.loads(line)
        n = request["ranks"]
        if n not in first:
            first[n] = WORLD.Create_group(WORLD.group.Incl(range(n)))
        comm, out, err = first[n].Dup(), io.StringIO(), Shown()
        os.chdir(request["cwd"])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = call(request["argv"], comm)
            except BaseException:
                traceback.print_exc()
                sys.__stderr__.flush()
                comm.Abort(1)
        answers = comm.gather((code, out.getvalue(), err.getvalue()))
        comm.Free()
        if answers:
            codes, outs, errs = zip(*answers, strict=True)
            (folder / "answer.part").write_text(json.dumps([max(codes), "".join(outs), "".join(errs)]))
            (folder / "answer.part").rename(folder / "answer")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
