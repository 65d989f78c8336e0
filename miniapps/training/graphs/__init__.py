"""Graphs: their data, the fields of nodes, sampled neighbours."""
