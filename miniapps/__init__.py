"""MPI mini-apps in which the order of floating-point additions is an explicit, recorded choice."""

import sys

# `python -m` puts the current directory first, and what lies there is no code of ours. These lines are in each of our
# packages, before any other import: the first that is imported cannot look for another.
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
    """Raise ImportError unless the packages `names` are those installed beside this one: Python prefers a file or
    package of that name in the current directory, or beside the program that is run."""
    beside = Path(__file__).resolve().parent.parent
    for name in names:
        spec = find_spec(name)
        origin = spec.origin if spec else None
        if origin is not None and Path(origin).resolve() != beside / name / "__init__.py":
            raise ImportError(
                f"{origin} hides the package {name} of fpna-miniapps, which is in {beside}: rename it, start "
                "elsewhere, or use the command fpna (or python -P), which does not look into the current directory"
            )


require_own("kernels")

from kernels import __version__ as __version__  # noqa: E402 - of the package that was just looked for
