"""MPI mini-apps in which the order of floating-point additions is an explicit, recorded choice."""

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

from importlib.util import find_spec
from pathlib import Path


def require_own(*names: str) -> None:
    """Raise ImportError unless Python finds the packages `names` beside this one: it prefers a file or package of the
    same name in the current directory, or beside the running program."""
    beside = Path(__file__).resolve().parent.parent
    for name in names:
        spec = find_spec(name)
        origin = spec.origin if spec else None
        if origin is not None and Path(origin).resolve() != beside / name / "__init__.py":
            raise ImportError(
                f"{origin} hides the package {name} of fpna-miniapps in {beside}: rename it, start in another "
                "directory, or use the command fpna (or python -P), which ignores the current directory"
            )


require_own("kernels")

from kernels import __version__ as __version__  # noqa: E402 - after the check of this package
