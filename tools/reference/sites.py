"""The sites that batch scripts are known for, from their files."""

from __future__ import annotations

from jobs.sites import Site, names, site
from tools.reference.markdown import code, page, table


def pages() -> dict[str, str]:
    """{path: page}."""
    known = [site(name) for name in names()]
    rows = [
        (f"[`{here.name}`](#{here.name})", here.scheduler, link(here), here.date, cores(here), here.memory or "",
         here.gpus or "", here.queue or "")
        for here in known
    ]  # fmt: skip
    header = ("site", "scheduler", "follows", "looked at", "cores of a node", "memory, GiB", "GPUs", "queue")
    parts = [part for here in known for part in (f"## {here.name}", described(here))]
    return {
        "reference/sites.md": page(
            "Sites",
            "The machines that `python -m jobs --site NAME` writes batch scripts for. "
            "[Sites](../how-to/sites.md) says how scripts are made and how you add a site.",
            table(header, rows), *parts,
        )
    }  # fmt: skip


def link(here: Site) -> str:
    """The page that a site's file follows."""
    return f"[page]({here.page})" if here.page.startswith("https:") else ""


def cores(here: Site) -> object:
    """How many cores programs may use; empty where it is not known."""
    return here.cores or ""


def described(here: Site) -> str:
    """What the script of a site sets, and why."""
    rows = [("starts ranks", code(here.launch.text), here.launch.why)]
    rows += [("directive", code(line.text), line.why) for line in here.directives]
    rows += [("variable", code(line.text), line.why) for line in here.environment]
    rows += [("module", code(name), "") for name in here.modules]
    more = here.with_gpus
    if more.launch:
        rows.append(("starts ranks with GPUs", code(more.launch.text), more.launch.why))
    rows += [("directive with GPUs", code(line.text), line.why) for line in more.directives]
    rows += [("variable with GPUs", code(line.text), line.why) for line in more.environment]
    rows += [("module with GPUs", code(name), "") for name in more.modules]
    for queue, steps in here.limits.items():
        times = "; ".join(f"{nodes} nodes: {seconds / 3600:g} h" for nodes, seconds in steps)
        rows.append(("longest job", code(queue), times))
    rows += [("not found on the page", "", text) for text in here.unchecked]
    return table(("what", "text", "why"), rows)
