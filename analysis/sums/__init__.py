"""Sums of runs that compare variants: samples to frames, statistics, prices, shapes, growth with N, tables, figures."""
