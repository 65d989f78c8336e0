"""What a user's own program takes from the suite: a communicator that keeps a promise, and a recording.

`import fpna` is how users reach it (docs/tutorials/own-programs.md).
"""
