"""The console output: a bar on a terminal, lines elsewhere, a log with ranks."""

import io
import logging
import re

from kernels import progress
from miniapps.runner import console


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_by_rank_0_where_it_is_wanted():
    for rank, wanted, stream in ((1, True, Terminal()), (0, False, Terminal()), (0, True, io.StringIO())):
        bar = console.progress("app", rank, wanted, 1, stream)
        bar.show(0, 1, 10)
        bar.clear()
        assert stream.getvalue() == ""  # without a terminal nothing in the first seconds


def test_without_a_terminal_a_line_says_what_is_done_and_left(monkeypatch):
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    stream = io.StringIO()
    lines = console.progress("app", 0, True, 1, stream)
    lines.show(0, 10, 40)
    lines.clear()
    assert re.fullmatch(r"app: step 10/40, 25%, \d+ s so far, \d+ s left\n", stream.getvalue())


def test_the_bar_counts_steps_and_repeats_and_wipes_itself(monkeypatch):
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)
    stream = Terminal()
    bar = console.progress("app", 0, True, 2, stream)
    bar.show(1, 5, 10)
    drawn = stream.getvalue()
    assert "[" + "#" * 30 + " " * 10 + "]" in drawn
    assert "repeat 2/2, step 5/10" in drawn
    bar.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_rank_0_says_what_was_asked_for_and_others_warn(capsys, tmp_path):
    for rank in range(2):
        log = console.logger("app", rank, "info", tmp_path / f"{rank}.log")
        log.debug("too much")
        log.info("from %d", rank)
        log.warning("careful")
        console.close(log)
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["app rank 0 INFO: from 0", "app rank 0 WARNING: careful", "app rank 1 WARNING: careful"]
    assert "rank 1 INFO: from 1" in (tmp_path / "1.log").read_text()
    assert logging.getLogger("miniapps.app.rank1").handlers == []
