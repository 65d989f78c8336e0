"""Finds packages that a backend or command needs and that are not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

WHEELS = {  # by module, where the wheel has another name
    "psij": "psij-python",
    "cupy": "cupy-cuda12x",
}


def missing(*modules: str) -> Callable[[], str | None]:
    """Makes the `available` function of `kernels.registry.variant`: it returns None, or names the absent wheels."""

    def reason() -> str | None:
        absent = [WHEELS.get(name, name) for name in modules if not _is_here(name)]
        if not absent:
            return None
        return f"not installed: {', '.join(absent)}; `pip install {' '.join(absent)}` brings it"

    return reason


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


OPTIONAL = (
    "torch", "scipy", "pandas", "pyarrow", "matplotlib", "jinja2", "rich", "cupy", "psij", "h5py", "mpi4py", "ml_dtypes"
)  # fmt: skip


def not_installed(error: ModuleNotFoundError) -> str | None:
    """A sentence that says what to install or build after a failed import of an optional package or of our C++
    kernels; None for any other module."""
    if error.name == "kernels._native":
        return str(error)
    name = (error.name or "").partition(".")[0]
    if not name or name not in OPTIONAL:
        return None
    return f"{name} is not installed, and this command needs it: pip install {WHEELS.get(name, name)}"
