"""Solves, of runs that recorded a residual: histories to frames, pairs, growth of a difference, tables, figures."""
