"""Every module with the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.reference.markdown import code, linked, page, table

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fpna", "kernels", "miniapps", "analysis", "jobs")
LEFT_OUT = "harnesses"  # examples for other programs


def pages() -> dict[str, str]:
    """{path: page}."""
    parts = ["What each module is for, in the first line of its docstring."]
    for top in PACKAGES:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("__init__.py")}):
            if LEFT_OUT in folder.parts:
                continue
            name = ".".join(folder.relative_to(ROOT).parts)
            rows = [
                (code(path.stem), first_line(path))
                for path in sorted(folder.glob("*.py"))
                if path.stem not in ("__init__", "__main__")
            ]
            parts += [
                f"{'##' if folder.parent == ROOT else '###'} {name}",
                first_line(folder / "__init__.py"),
            ]
            parts += [table(("module", "is for"), rows)] if rows else []
    return {"reference/modules.md": page("Modules", *parts)}


def first_line(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line; empty where it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return linked(" ".join(text.partition("\n\n")[0].split()), "../")
