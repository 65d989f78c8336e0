"""The sums of `reductions`: samples to frames, statistics, prices, shapes, growth with N, tables, figures."""
