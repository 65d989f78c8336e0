"""Choices by predicted time: guarantees, orderings, machines, shardings."""
