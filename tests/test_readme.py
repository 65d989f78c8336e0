"""README.md and tutorials: their commands run, print what the page shows, and name what there is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fpna.command import main

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]\d+)?")
HASH = re.compile(r"\b[0-9a-f]{32}\b|(?<=hash )[0-9a-f]{16}\b")
PRINTED = re.compile(r"(?:^FINGERPRINT state=|\bhash (?=[0-9a-f]{16}$))(\w+)$", re.MULTILINE)


def transcripts(page: str) -> list[tuple[str, list[str]]]:
    """Each command behind `$` in the text of a page, and the lines shown for it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


RACE = re.compile(r"(?<=message order: ).*|(?<=arrival order  first differs at step ).*")


def shape(line: str) -> str:
    """A line without its numbers, hashes and widths, and without the sums whose order a race decided."""
    return " ".join(NUMBER.sub("#", HASH.sub("#", RACE.sub("", line))).split())


def in_order(shown: list[str], printed: list[str]) -> str | None:
    """The first line shown that is not printed behind those before it, or None. `...` stands for any lines."""
    at, free = 0, False
    for line in shown:
        if line.strip() == "...":
            free = True
            continue
        places = [i for i, other in enumerate(printed[at:], at) if shape(other) == shape(line)]
        if not places or (not free and places[0] != at):
            return line
        at, free = places[0] + 1, False
    return None


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 150


def test_shapes_are_compared_in_order():
    assert in_order(["a 1", "...", "c 3.5e-7"], ["a 2", "b", "c 4"]) is None
    assert in_order(["a 1", "c 3"], ["a 2", "b", "c 4"]) == "c 3"
    assert in_order(["...", "c", "a"], ["a", "c"]) == "a"


def test_commands_that_it_names_are_there(capsys):
    assert main(["--help"]) == 0
    known = set(re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE))
    named = set(re.findall(r"\bfpna (\w+)", TEXT))
    assert {"try", "run", "coupled", "divergence", "report"} <= named <= known
    targets = set(re.findall(r"`make (\w+)`", TEXT))
    assert targets and targets <= set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page, files",
    [
        ("README.md", ()),
        ("docs/tutorials/c-program.md", ("docs/examples/rod.c",)),
        ("docs/tutorials/training.md", ("docs/examples/torch_ddp.py", "docs/examples/torch_fsdp.py")),
        ("docs/tutorials/campaign.md", ()),
        ("docs/how-to/any-ranks.md", ("docs/examples/torch_any_ranks.py",)),
        ("docs/how-to/watch.md", ("docs/examples/torch_watch.py",)),
        ("docs/tutorials/threads.md", ("docs/examples/torch_threads.py",)),
        ("docs/how-to/link.md", ("docs/examples/sums/cg.c", "docs/examples/sums/deposit.cpp")),
    ],
)
def test_commands_of_a_page_print_what_it_shows(page, files, tmp_path):
    """Hashes may be others on another processor; those that are alike on the page are alike here, and only those."""
    here = Path(sys.executable).parent
    if not shutil.which("mpirun", path=str(here)) or (files and not shutil.which("mpicc", path=str(here))):
        pytest.skip("no mpirun or no mpicc beside this python")
    for file in files:
        shutil.copy(ROOT / file, tmp_path)
    hashes: dict[str, str] = {}
    for command, shown in transcripts((ROOT / page).read_text()):
        run = subprocess.run(
            ["bash", "-c", f'export PATH="{here}:$PATH"; {command}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        word = (re.search(r"fpna (\w+)", command) or ["", ""])[1]
        differs = word == "divergence" and "differ: " in shown[0]
        assert run.returncode == (3 if differs else 0), (command, run.stderr)
        if word == "try":  # what it finds is of the machine
            heads = [line for line in shown if re.match(r"\d  ", line)]
            printed = {line[:20] for line in run.stdout.splitlines()}
            assert len(heads) == 3 and all(line[:20] in printed for line in heads), run.stdout
            continue
        printed = (run.stderr if word == "run" else "") + run.stdout  # which says where it records there
        assert in_order(shown, printed.splitlines()) is None, (command, printed)
        there = PRINTED.findall(run.stdout)
        for ours, theirs in zip(HASH.findall("\n".join(shown)), there, strict=True):
            assert hashes.setdefault(ours, theirs) == theirs, command
    assert len(set(hashes.values())) == len(hashes)
