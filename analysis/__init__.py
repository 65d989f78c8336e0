"""Reads traces, never runs applications: traces to pandas frames, frames to frames, figures and one
report."""
