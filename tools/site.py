"""What mkdocs calls while it builds the site: the pages that code writes, and those at the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path

from kernels.missing import not_installed  # noqa: E402
from tools.figures import without_templates  # noqa: E402

AT_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "RELEASING.md")
made: dict[str, dict[str, str]] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation, under Reference."""
    try:  # all that is documented is imported: make environment brings it
        from tools.reference import groups

        made.update(groups())
    except ModuleNotFoundError as error:
        if sentence := not_installed(error):
            raise PluginError(f"the reference is made from all of the code: {sentence}") from error
        raise
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    reference += [{heading: list(pages)} for heading, pages in made.items() if pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and those at the root, whose links into docs/ begin one folder higher."""
    for pages in made.values():
        for path, text in pages.items():
            files.append(File.generated(config, path, content=text))
    for name in AT_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/ to the pages at the root lead to their copies; templates of figures are left out."""
    markdown = without_templates(markdown)
    for name in AT_ROOT:
        markdown = markdown.replace(f"../{name}", name if "/" not in page.file.src_uri else f"../{name}")
    return markdown
