"""Reads traces, never runs applications: traces to pandas frames, frames to frames, figures and one
report."""

import miniapps  # noqa: F401 (which sees that no other package hides one of ours)
