"""Why a backend cannot run here: packages that are not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec


def missing(*packages: str) -> Callable[[], str | None]:
    """The question of `kernels.registry.variant`: None, or which of these packages are not installed."""

    def reason() -> str | None:
        absent = [name for name in packages if find_spec(name) is None]
        if not absent:
            return None
        return f"not installed: {', '.join(absent)}; `pip install {' '.join(absent)}` brings it"

    return reason
