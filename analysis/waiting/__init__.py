"""Analyses which ranks wait for which in one repeat: waits, replays, efficiencies, late ranks, slow links, paths."""
