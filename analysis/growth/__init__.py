"""How the difference between runs grows with the step: the law, the runs it is fitted to, the table."""
