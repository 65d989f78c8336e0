"""The report in a real browser: nothing fetched, no errors, and no sideways scrolling at any width."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from analysis.load.frames import load
from analysis.report.build import build
from miniapps.trace import Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import attributes, flip_bit, region, write_result, write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH; on Debian: apt-get install chromium"
)

# The report in a frame of the wanted width, since a browser window has a smallest one; what is seen there is
# written into the page, and the page printed. It states its encoding: a browser that guesses sometimes guesses wrong.
HARNESS = """<!doctype html><meta charset="utf-8"><body>
<iframe style="width:{width}px;height:3000px;border:0" srcdoc="{page}"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const inner = frame.contentDocument, view = frame.contentWindow;
  const size = e => e.getBoundingClientRect(), style = e => view.getComputedStyle(e);
  const lines = e => {{
    const text = inner.createRange();
    text.selectNodeContents(e);
    return new Set([...text.getClientRects()].map(box => Math.round(box.top))).size;
  }};
  for (const e of inner.querySelectorAll("details")) e.open = true;
  // The table of groups by the column of results, up and down; a link to the last section opens it.
  const table = inner.querySelector("table"), body = table.tBodies[0];
  const results = [...table.tHead.rows[0].cells].find(e => e.textContent === "results");
  const sorted = [];
  for (let k = 0; results?.querySelector("button") && k < 2; k++) {{
    results.querySelector("button").click();
    sorted.push([...body.rows].map(row => row.cells[results.cellIndex].textContent === "1" ? "1" : "2"));
  }}
  const how = inner.querySelector("#method details");
  how.open = false;
  view.location.hash = "#method";
  view.dispatchEvent(new view.HashChangeEvent("hashchange"));
  const revealed = how.open;
  setTimeout(() => {{  // the page notices by itself which tables are wider than it
  const letters = [...inner.querySelectorAll("svg text")];
  const seen = {{
    width: view.innerWidth,
    content: inner.documentElement.scrollWidth,
    fetched: view.performance.getEntriesByType("resource").length,
    figures: [...inner.querySelectorAll("svg")].map(e => size(e).width),
    smallest: Math.min(...letters.map(e => size(e).height)),
    paper: style(inner.body).backgroundColor,
    ink: style(inner.body).color,
    letters: letters.length ? style(letters[0]).fill : "",
    heading: inner.querySelector(".headline").innerText,
    links: [...inner.querySelectorAll("a.data")].map(e => [e.download, e.protocol, size(e).width > 0]),
    grid: size(inner.querySelector("table.grid, table")).width,
    around: size(inner.querySelector("table.grid, table").parentElement).width,
    heights: [...inner.querySelectorAll("figure")].map(e => size(e).height),
    breaks: [...inner.querySelectorAll("figure")].map(e => style(e).breakInside),
    clipped: [...inner.querySelectorAll(".scroll")].filter(e => {width} > 1200 && e.scrollWidth > e.clientWidth + 1)
      .map(e => e.textContent.slice(0, 60)),
    wide: [...inner.querySelectorAll(".scroll")].map(e =>
      [e.scrollWidth > e.clientWidth + 1, style(e.nextElementSibling).display !== "none", e.tabIndex === 0]),
    broken: [...inner.querySelectorAll("td.n")].filter(e => size(e).height && lines(e) > 1).map(e => e.textContent),
    sorted: sorted,
    revealed: revealed,
    reached: [...inner.querySelectorAll("a, summary, [tabindex]")].every(e => e.tabIndex >= 0),
  }};
  document.body.innerHTML = "<pre id=seen></pre>";
  document.querySelector("pre").textContent = JSON.stringify(seen);
  }}, 200);
}};
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    long = "a-rather-long-ordering-name-that-does-not-fit-a-phone"

    def change(i):
        return lambda repeat, step, field: flip_bit(field, i, bit=step) if step > 1 else None

    for i in range(3):
        write_run(root / f"none-{i}", change=change(i), orders=lambda repeat, step: [np.arange(2)])
    for size in (1, 2):
        write_run(root / f"layout-{size}", size=size, guarantee="layout", ordering=long)
    write_run(root / "killed", stop={0: 2}, result=False)
    return build(load([root]))


def look(report, tmp_path, width, dark=False):
    """What the browser saw, and what it said on its error stream."""
    page = tmp_path / f"{width}.html"
    page.write_text(HARNESS.format(width=width, page=html.escape(report.html)), encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1800,1200", "--enable-logging=stderr",
            "--virtual-time-budget=3000", *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    match = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.S)
    assert match, done.stderr
    return json.loads(html.unescape(match[1])), done.stderr


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_its_window_and_is_quiet(report, tmp_path, width):
    seen, log = look(report, tmp_path, width)
    assert seen["width"] == width
    assert seen["content"] <= width
    assert seen["fetched"] == 0
    assert "CONSOLE" not in log
    assert all(200 < figure <= width for figure in seen["figures"]) and len(seen["figures"]) >= 5
    assert len(seen["links"]) == len(seen["figures"])
    assert all(name.endswith(".csv") and kind == "data:" and shown for name, kind, shown in seen["links"])
    assert seen["around"] <= width  # a wide table scrolls inside
    assert seen["reached"]
    assert seen["smallest"] >= 8  # CSS pixels of the smallest letters in any figure
    assert " ".join(seen["heading"].split()) == report.verdict.replace("): ", ") ")
    assert seen["clipped"] == []
    assert all(wider == said == reached for wider, said, reached in seen["wide"])
    assert any(wider for wider, _, _ in seen["wide"]) == (width == 400)
    assert seen["broken"] == []
    assert seen["sorted"] == [["1", "2"], ["2", "1"]]
    assert seen["revealed"]


def test_colours_follow_light_and_dark(report, tmp_path):
    def brightness(colour):
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    light, _ = look(report, tmp_path, 800)
    dark, _ = look(report, tmp_path, 800, dark=True)
    assert brightness(light["paper"]) > 700 > 200 > brightness(light["ink"])
    assert brightness(dark["paper"]) < 200 < 600 < brightness(dark["ink"])
    assert light["letters"] == light["ink"] and dark["letters"] == dark["ink"]


def test_the_content_security_policy_forbids_scripts_and_leaves_the_drawings_alone(report, tmp_path):
    page = tmp_path / "hostile.html"
    page.write_text(report.html.replace("<main>", "<main><script>document.title = 'run'</script>", 1))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
            f"--user-data-dir={tmp_path / 'profile'}", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "<title>run</title>" not in done.stdout
    refused = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(refused) == 1 and "script" in refused[0]  # only the script, no style and no drawing


def test_no_figure_is_higher_than_a_printed_page_and_no_number_is_broken_there(report, tmp_path):
    tall = '<div class="figures"><figure><svg viewBox="0 0 400 4000"><text>tall</text></svg></figure></div>'
    heads = "".join(f"<th>{name}</th>" for name in ("names", *["largest"] * 11, "remark"))
    cells = "".join(
        ["<td>cg_iterations</td>", *['<td class="n">5.31e-14</td>'] * 11, f"<td>{'word ' * 40}</td>"]
    )
    wide = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table></div>'
    wide += "<p></p>"
    printed = report.html.replace("@media print", "@media all").replace("</main>", f"{tall}{wide}</main>")
    seen, _ = look(replace(report, html=printed), tmp_path, 718)  # A4 less margins of 1 cm, in CSS pixels
    assert seen["content"] <= 718
    assert seen["broken"] == []
    assert max(seen["heights"]) > 700  # the tall one
    assert all(
        height < 1000 and inside == "avoid"
        for height, inside in zip(seen["heights"], seen["breaks"], strict=True)
    )


@pytest.mark.usefixtures("undrawn")
def test_long_names_on_three_rank_counts_fit_a_page_of_1200_px(tmp_path):
    names = [f"encoder.layer_{k:02d}.weight_norm" for k in range(25)]

    def record(tracers, run, step):
        for tracer in tracers:
            tracer.at(0, step)
            begin = tracer.clock()
            for name in names:
                tracer.event(region(tracer, f"{name}.compute"), tracer.clock())
            tracer.event(region(tracer, "step"), begin)
        for k, name in enumerate(names):
            tracers[0].value(name, 1.0 + k + (k % 3) * run * 1e-15 * np.exp(0.6 * step))

    for size in (1, 2, 4):
        for run in range(3):
            out = tmp_path / f"r{size}-{run}"
            out.mkdir()
            tracers = [
                Tracer(
                    out / rank_file(rank),
                    attributes(rank, size, "none", "library", run_id=str(out)),
                    size=size,
                )
                for rank in range(size)
            ]
            for step in range(20):
                record(tracers, run, step)
            for tracer in tracers:
                tracer.close(complete=True)
            write_result(out, fingerprints=[f"{run:032x}"])
    seen, _ = look(build(load([tmp_path])), tmp_path, 1200)
    assert seen["content"] <= 1200
    assert not any(wider for wider, _, _ in seen["wide"])
    assert seen["broken"] == []
