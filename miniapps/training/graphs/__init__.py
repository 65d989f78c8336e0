"""Graphs: their data, the fields of nodes, neighbours that are drawn."""
