"""`fpna cause A B -- PROGRAM`: an experiment that decides whether rounding explains the difference of two runs."""
