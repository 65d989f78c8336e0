"""Reads traces into frames: finds runs, reads the file of each rank, joins the ranks of a run, and then all runs."""
