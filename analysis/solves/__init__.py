"""The solves of `solver`: histories to frames, pairs, growth of a difference, tables, figures."""
