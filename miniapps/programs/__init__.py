"""Tools for a user's own program, by `import fpna`: a communicator that keeps a guarantee, and recordings of runs
(docs/tutorials/own-programs.md)."""
