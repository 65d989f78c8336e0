"""The pages of docs/reference that code writes: every fact in them is declared where the program uses it.

    pages()                                 {path below docs/: Markdown}
    python -m tools.reference FOLDER        writes them there, to be read without the site

`make docs` puts them into the site; none of them is kept in the repository. A new command, application, option,
ordering, variant, site, table or column needs no change here.
"""

from __future__ import annotations

from tools.reference import api, applications, commands, documents, lint, modules, registries, sites, trace

GROUPS = {
    "Commands": commands.pages,
    "Options of applications": applications.pages,
    "What can be chosen": lambda: registries.pages() | sites.pages(),
    "Files and documents": lambda: trace.pages() | documents.pages() | lint.pages(),
    "Python": lambda: api.pages() | modules.pages(),
}


def groups() -> dict[str, dict[str, str]]:
    """{heading in the navigation: {path below docs/: Markdown}}."""
    return {heading: make() for heading, make in GROUPS.items()}


def pages() -> dict[str, str]:
    """{path below docs/: Markdown}."""
    return {path: text for group in groups().values() for path, text in group.items()}
