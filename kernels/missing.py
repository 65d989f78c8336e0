"""Why a backend cannot run here: packages that are not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

WHEELS = {  # of modules whose wheels have other names
    "tvm": "apache-tvm",
    "iree.compiler": "iree-base-compiler",
    "iree.runtime": "iree-base-runtime",
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
