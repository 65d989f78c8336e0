"""`pack`: packs spanning trees into links from a file of `links`, or one written by hand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kernels.allreduce import links as files
from kernels.allreduce.instruments.pack import SLACK, pack
from kernels.allreduce.links import Linked, Links
from kernels.as_json import Document, columns, document, rows
from kernels.commands.options import add_json, add_loudness
from kernels.commands.parser import Number

SHOWN = 16  # vertices of a table, trees of a list

_PACKED = Document(
    columns("""
        of | text | ends of the links: `ranks` or `nodes`
        hosts | list of text
        rates | list of list of number | bytes per second from the row's to the column's
        latencies | list of list of number | seconds; empty where unknown
        ports | list of object | `vertices` that share a port, and its `rate`
        rate | number | bytes of a vector per second along these trees
        bound | number | upper bound of this rate for any trees
    """),
    (
        rows(
            "tables.trees",
            "the trees",
            """
            share | number
            height root | integer
            parents | list of integer | of each vertex; -1: the root
        """,
        ),
    ),
)
DOCUMENTS = {"kernels allreduce pack": _PACKED, "kernels allreduce links": _PACKED}


def add_packing(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a packing: its slack, and the file to write."""
    parser.add_argument(
        "--slack",
        type=Number(0.0, 0.9),
        default=SLACK,
        help="fraction of the rate that lower and fewer trees may cost (default: %(default)s)",
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write links and packing to this file, for trees:links=FILE"
    )


def register(commands) -> None:
    """Adds the command `pack`."""
    parser = commands.add_parser(
        "pack",
        help="spanning trees packed into links, for the ordering trees",
        description="Packs spanning trees into the links of a file: finds trees, and the share of a vector for each, "
        "that use links and ports best. The command `links` writes such a file, or you write it: a JSON object with "
        "`rates`, a table of bytes per second from vertex to vertex, 0 for no link; optionally `ports`, a list of "
        "{vertices, rate}, and `of`, ranks or nodes. Needs SciPy.",
        epilog="example: python -m kernels.allreduce pack links.json --slack 0 --write packed.json",
    )
    parser.add_argument("links", metavar="FILE", help="file of links")
    add_packing(parser)
    add_json(parser)
    add_loudness(parser, "the rate alone", "also the links, and all trees")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    linked = pack(files.read_plain(args.links), args.slack)
    if args.write:
        files.write(args.write, linked)
    if args.json:
        print(as_document("pack", linked))
        return 0
    if args.verbose:
        print(table(linked.links), end="\n\n")
    print(summary(linked, args.quiet, args.verbose))
    return 0


def table(links: Links) -> str:
    """The table of rates from row to column in MB/s, and the rates of ports."""
    shown = range(min(links.vertices, SHOWN))
    lines = [
        f"MB/s from row to column, {links.of}"
        + ("" if len(shown) == links.vertices else f", the first {SHOWN}")
    ]
    lines.append(" " * 8 + "".join(f"{v:>9}" for v in shown))
    for u in shown:
        lines.append(
            f"{u:>8}" + "".join(f"{_megabytes(links.rates[u][v]) if u != v else '-':>9}" for v in shown)
        )
    for port in links.ports[:SHOWN]:
        names = ", ".join(map(str, port.vertices))
        lines.append(f"port of {names}: {_megabytes(port.rate)}")
    return "\n".join(lines)


def summary(linked: Linked, quiet: bool = False, verbose: bool = False) -> str:
    """The rate of the packing, its upper bound, and the trees, as text."""
    packing = linked.packing
    assert packing is not None
    count = packing.vertices
    if count == 1:
        return "one vertex: nothing is sent"
    text = (
        f"packed: {_megabytes(linked.rate)} MB/s of a vector, at most {_megabytes(linked.bound)} along trees; bus "
        f"bandwidth {_megabytes(linked.rate * 2 * (count - 1) / count)} MB/s"
    )
    if quiet:
        return text
    lines = [text]
    whole = sum(tree.share for tree in packing.trees)
    trees = packing.trees if verbose else packing.trees[:SHOWN]
    for tree in trees:
        ways = ", ".join(
            f"{parent} <- {', '.join(map(str, children))}"
            for parent, children in sorted(enumerate(tree.children), key=lambda each: tree.depths[each[0]])
            if children
        )
        lines.append(f"{tree.share / whole:>8.1%}  height {tree.height}  {ways}")
    if len(trees) < len(packing.trees):
        lines.append(f"and {len(packing.trees) - len(trees)} trees more; --verbose shows all")
    return "\n".join(lines)


def as_document(command: str, linked: Linked) -> str:
    """The JSON document of links and packing."""
    packing = linked.packing
    assert packing is not None
    ports: Sequence[dict[str, Any]] = [{"vertices": p.vertices, "rate": p.rate} for p in linked.links.ports]
    return document(
        1, f"kernels allreduce {command}", of=linked.links.of, hosts=linked.links.hosts, rates=linked.links.rates,
        latencies=linked.links.latencies, ports=ports, rate=linked.rate, bound=linked.bound,
        tables={
            "trees": [
                {"share": t.share, "height": t.height, "root": t.root, "parents": t.parents} for t in packing.trees
            ],
        },
    )  # fmt: skip


def _megabytes(rate: float) -> str:
    return f"{rate / 1e6:,.0f}" if rate >= 1e9 else f"{rate / 1e6:.4g}"
