"""The lines of a comparison of two runs, as the analysis prints them."""

from analysis.comparison import line, remarks
from analysis.sentences import sentence


def comparison_lines(comparison, frames):
    """Where two runs part, in words."""
    return [sentence(comparison), *(line(*each) for each in remarks(comparison, frames))]
