"""Why a backend cannot run here: packages that are not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

WHEELS = {  # of modules whose wheels have other names
    "psij": "psij-python",
    "cupy": "cupy-cuda12x",
}


def missing(*modules: str) -> Callable[[], str | None]:
    """The question of `kernels.registry.variant`: None, or the wheels of those of `modules` that are absent."""

    def reason() -> str | None:
        absent = [WHEELS.get(name, name) for name in modules if not _is_here(name)]
        if not absent:
            return None
        return f"not installed: {', '.join(absent)}; `pip install {' '.join(absent)}` brings it"

    return reason


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


OPTIONAL = (
    "torch", "scipy", "pandas", "pyarrow", "matplotlib", "jinja2", "rich", "cupy", "psij", "h5py", "mpi4py", "ml_dtypes"
)  # fmt: skip


def not_installed(error: ModuleNotFoundError) -> str | None:
    """What to install or build, in a sentence, where an import failed for want of a package of others or of our C++
    kernels; None where it is another module of ours, or of a program of the user's own."""
    if error.name == "kernels._native":
        return str(error)
    name = (error.name or "").partition(".")[0]
    if not name or name not in OPTIONAL:
        return None
    return f"{name} is not installed, and this command needs it: pip install {WHEELS.get(name, name)}"
