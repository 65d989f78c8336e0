"""The commands of `python -m analysis`, a module each: `SUMMARY`, `DETAIL` and `EXAMPLES` for the help,
`add_options(parser)`, and `run(options) -> exit code`. What is imported with them is light; frames and figures are
imported when one runs.
"""

COMMANDS = (
    "report", "divergence", "variability", "growth", "components", "sums", "solves", "learning", "audits", "answers",
    "scaling", "sharding", "predict", "score", "nodes", "lint", "chain", "show", "export", "ask",
)  # fmt: skip
