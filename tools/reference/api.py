"""The Python API: which names there are; the site takes their docstrings from the source."""

from __future__ import annotations

import fpna
from tools.reference.markdown import page

# Modules that users may import, with what each is for.
MODULES = {
    "fpna.torch": "operators of PyTorch whose sums have a chosen order",
    "kernels.guarantees": "the levels of promise",
    "kernels.registry": "variants of the operations",
    "kernels.allreduce": "orderings of all-reduces and the reducers that run them",
    "kernels.allreduce.catalog": "all orderings by name",
    "kernels.wires": "messages encoded",
    "kernels.sums": "sums, dot products and norms",
    "kernels.scatter": "scatter-adds",
    "kernels.sparse": "sparse products",
    "kernels.contract": "products of matrices and convolutions",
    "kernels.inference": "networks that answer requests",
    "miniapps.trace": "traces, written and read",
    "analysis.load.frames": "runs as pandas frames",
}


def pages() -> dict[str, str]:
    """{path: page}."""
    found = {"reference/api/fpna.md": of_fpna()}
    for room in ("kernels", "miniapps", "analysis"):
        modules = {name: text for name, text in MODULES.items() if name.partition(".")[0] == room}
        found[f"reference/api/{room}.md"] = page(
            room, *(part for name in modules for part in (f"## {name}", directive(name, 3, whole=True)))
        )
    return found


def of_fpna() -> str:
    """The names of `import fpna`, and `fpna.torch`."""
    parts = [
        "What a program of yours imports. [Your own program](../../tutorials/own-programs.md) shows how."
    ]
    parts += [
        f"## fpna.{name}\n\n{directive(f'{home}.{name}', 3)}" for name, home in sorted(fpna.HOMES.items())
    ]
    return page("fpna", *parts, "## fpna.torch", directive("fpna.torch", 3, whole=True))


def directive(path: str, level: int, whole: bool = False) -> str:
    """What mkdocstrings reads: the object, and below which heading it stands."""
    options = ["show_root_heading: false", "show_root_toc_entry: false", f"heading_level: {level}"]
    if not whole:
        options.append("members_order: source")
    return "\n".join([f"::: {path}", "    options:", *(f"      {line}" for line in options)])
