"""Texts of Matrix Market drawn at random: what the standard allows is read as it was drawn and as SciPy reads it; what
it does not allow is refused, with the lines named.

    .venv/bin/python -m tests.miniapps.drawn_matrices --cases 20000 [--seed 1]
"""

import argparse
import gzip
import random
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import scipy.io
from mpi4py import MPI

from miniapps.layout.rows import Rows
from miniapps.solver import files, matrix_market
from miniapps.solver.matrixfile import FileError

DEFECTS = (
    "both triangles", "skew diagonal", "large integer", "outside", "few", "many", "not finite", "rectangular",
    "complex", "pattern", "mark", "blanks", "carriage returns", "gzip", "plus", "fourth number", "D exponent",
)  # fmt: skip


class Case:
    """A text, and the matrix that it holds; `defect` is what is wrong with it, and `lines` those to be named."""

    def __init__(self, seed: int):
        self.draw = draw = random.Random(seed)
        self.n, self.lines = draw.choice((1, 2, 3, 5, 9)), []
        self.defect = draw.choice(DEFECTS) if draw.random() < 0.4 else ""
        self.field = draw.choice(("real", "real", "integer"))
        self.symmetry = draw.choice(("general", "general", "symmetric", "skew-symmetric"))
        if self.defect == "both triangles":
            self.n, self.symmetry = max(self.n, 2), draw.choice(("symmetric", "skew-symmetric"))
        if self.defect == "skew diagonal":
            self.symmetry = "skew-symmetric"
        if self.defect == "large integer":
            self.field = "integer"
        if self.defect == "D exponent":
            self.field = "real"
        self.end = "\r\n" if draw.random() < 0.2 else "\n"
        self.dense = np.zeros((self.n, self.n))
        self.text = self.written().encode("utf-8")
        if self.defect == "mark":
            self.text = b"\xef\xbb\xbf" + self.text
        if self.defect == "blanks":
            self.text = draw.choice((b" ", b"\n", b"\t \n")) + self.text
        if self.defect == "carriage returns":
            self.text = self.text.replace(b"\r\n", b"\n").replace(b"\n", b"\r")
        if self.defect == "gzip":
            self.text = gzip.compress(self.text)

    def any_case(self, word: str) -> str:
        return self.draw.choice((word, word, word.upper(), word.capitalize()))

    def blank(self) -> str:
        return self.draw.choice((" ", " ", "  ", "\t"))

    def number(self) -> tuple[str, float]:
        """A number as text, and what it is."""
        draw = self.draw
        if self.field == "integer":
            whole = draw.choice((0, 1, -3, 7, 10**6, 2**53, -(2**60), 3 * 2**58))
            return f"{whole}", float(whole)
        value = draw.choice(
            (draw.uniform(-9, 9), 10.0 ** draw.randrange(-300, 300), float(draw.randrange(-5, 6)))
        )
        text = draw.choice(
            (repr(value), f"{value:.17e}", f"{value:.16E}", f"{value:.6g}", f"{value:.3f}"[:300])
        )
        if draw.random() < 0.1 and text.startswith("0."):
            text = text[1:]
        return text, float(text)

    def places(self) -> list[tuple[int, int]]:
        """Places of entries, every row among them, some twice."""
        draw, n = self.draw, self.n
        if self.symmetry == "general":
            found = [(i, draw.choice((i, draw.randrange(n)))) for i in range(n)]
            found += [(draw.randrange(n), draw.randrange(n)) for _ in range(draw.randrange(2 * n))]
        else:
            upper = draw.random() < 0.3
            found = [(i, i) for i in range(n)]
            for _ in range(draw.randrange(2 * n)):
                i, j = sorted((draw.randrange(n), draw.randrange(n)))
                found.append((i, j) if upper else (j, i))
        self.twice = len(set(found)) < len(found)
        draw.shuffle(found)
        return found

    def written(self) -> str:
        draw, blank, n = self.draw, self.blank, self.n
        places = self.places()
        texts = []
        for i, j in places:
            text, value = self.number()
            if self.symmetry == "skew-symmetric" and i == j:
                text, value = draw.choice(("0", "-0")), 0.0
            self.dense[i, j] += value
            if self.symmetry != "general" and i != j:
                self.dense[j, i] += -value if self.symmetry == "skew-symmetric" else value
            texts.append(f"{i + 1}{blank()}{j + 1}{blank()}{text}")
        at = draw.randrange(len(texts))
        bad = {
            "large integer": f"1 1 {draw.choice((2**53 + 1, -(2**53) - 3, 2**62 + 1))}",
            "outside": draw.choice((f"{n + 1} 1 1", f"1 {n + 1} 1", "0 1 1")),
            "not finite": "1 1 " + draw.choice(("nan", "inf", "-Infinity", "1e400" if self.field == "real" else "NaN")),
            "skew diagonal": f"{n} {n} 2", "plus": "1 1 +1", "fourth number": "1 1 1 1", "D exponent": "1 1 1D0",
        }  # fmt: skip
        named = []
        if self.defect in bad:
            texts.insert(at, bad[self.defect])
            named = [at]
        if self.defect == "both triangles":
            i, j = sorted(draw.sample(range(n), 2))
            texts = [t for t in texts if tuple(sorted(map(int, t.split()[:2]))) != (i + 1, j + 1)]
            lower = draw.randrange(len(texts) + 1)
            texts.insert(lower, f"{j + 1} {i + 1} 1")
            upper = draw.randrange(len(texts) + 1)
            texts.insert(upper, f"{i + 1} {j + 1} 1")
            named = [lower + (upper <= lower), upper]
        count = len(texts) + {"few": 1, "many": -1}.get(self.defect, 0)
        columns = n + 1 if self.defect == "rectangular" else n
        field = {"complex": "complex", "pattern": "pattern"}.get(self.defect, self.field)
        banner = " ".join(map(self.any_case, ("matrix", "coordinate", field, self.symmetry)))
        lines = [f"%%MatrixMarket {banner}"]
        lines += [draw.choice(("%", "% a comment", "%3 3 3", "")) for _ in range(draw.randrange(3))]
        lines.append(f"{n}{blank()}{columns}{blank()}{count}")
        for number, text in enumerate(texts):
            lines += [""] * (draw.random() < 0.05)
            lines.append(draw.choice(("", "", " ")) + text + draw.choice(("", "", " ")))
            if number in named:
                self.lines.append(len(lines))
        return self.end.join(lines) + self.end * (draw.random() < 0.9 or self.defect == "few")


def trouble(case: Case, path: Path) -> str:
    """What is wrong with how the text is read; empty where nothing is."""
    path.write_bytes(case.text)
    rows = Rows(np.append(np.arange(0, case.n, 2), case.n))
    try:
        with patch.object(matrix_market, "PIECE", case.draw.choice((7, 40, 1 << 20))):
            files.header(path)
            indptr, columns, data = files.read(path, MPI.COMM_SELF, rows)
    except FileError as error:
        message = str(error)
        if not case.defect:
            return f"refused: {message}"
        if any(f"line {line}" not in message for line in case.lines) or "\n" in message:
            return f"{case.defect}: lines {case.lines} are not in {message!r}"
        return ""
    if case.defect:
        return f"{case.defect}: not refused"
    found = np.zeros_like(case.dense)
    found[np.repeat(np.arange(case.n), np.diff(indptr)), columns] = data
    if not np.array_equal(found, case.dense):
        return f"read {found.tolist()}, drawn {case.dense.tolist()}"
    if case.draw.random() < 0.7:  # SciPy starts threads for each
        return ""
    path.write_bytes(case.text + b"\n")  # SciPy 1.17 crashes where the last line ends with a blank alone
    try:
        theirs = scipy.io.mmread(path).toarray()
    except (ValueError, OverflowError):
        return ""
    return "" if case.twice or np.array_equal(theirs, found) else f"SciPy reads {theirs.tolist()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    options = parser.parse_args()
    begin, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.cases):
            case = Case(seed)
            if found := trouble(case, Path(folder) / "drawn.mtx"):
                failed += 1
                print(f"seed {seed}: {found}\n{case.text[:400]!r}", flush=True)
    print(f"{options.cases} cases, {failed} failures, {time.monotonic() - begin:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
