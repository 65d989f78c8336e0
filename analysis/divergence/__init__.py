"""The first difference of two runs: its place, its cause, its event and its element."""
