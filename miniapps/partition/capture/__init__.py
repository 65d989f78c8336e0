"""Converts a step function of torch to a graph, and refuses steps that a graph cannot represent."""
