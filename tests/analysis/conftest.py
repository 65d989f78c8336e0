"""Settings common to the tests of the analysis."""

from unittest import mock

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_measuring():
    """Made-up runs do not measure what an event of theirs costs: it would take longer than to write most of them."""
    with mock.patch("miniapps.trace.writer.cost_of_event", return_value=100.0):
        yield


@pytest.fixture
def undrawn(monkeypatch):
    """Reports whose figures are empty, for tests of their text: most of the time of a small report is drawing."""
    monkeypatch.setattr("analysis.page.svg.draw", lambda *args: "<svg></svg>")
