"""Replays a program on other ranks: targets, waits, and the spread of predictions."""
