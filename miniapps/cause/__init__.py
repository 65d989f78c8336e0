"""`fpna cause A B -- PROGRAM`: whether rounding explains why two runs differ, by an experiment."""
