"""Finds the command that answers a question: collects facts of runs, fills in commands from them, ranks these."""
