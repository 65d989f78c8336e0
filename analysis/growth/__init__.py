"""How the difference between runs grows with the step: the law, of which runs, as a table."""
