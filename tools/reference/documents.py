"""The documents of --json, from the declarations beside what writes them."""

from __future__ import annotations


def pages() -> dict[str, str]:
    """{path: page}."""
    return {}
