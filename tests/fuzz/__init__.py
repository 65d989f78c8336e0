"""Damaged and hostile files, made at random by the thousand, and one criterion for what may come of each:

    no traceback, no hang, bounded memory, no verdict other than that of the undamaged run or "damaged",
    nothing outside the run's directory read, written or removed.

    python -m tests.fuzz --minutes 60 --jobs 2              hours by option; exit code 1 if one broke the criterion
    python -m tests.fuzz --kind bytes,cache --cases 1000      some kinds only
    python -m tests.fuzz --case bytes:12345                   one case again, with what was done and what was said

A case is a kind and a seed: `kinds` are functions that draw everything from the generator they are given. A case runs
in a worker, which plays cases one after the other in a directory of its own (`sandbox`); the parent (`pool`) gives
each its time and sees it die. `test_fuzz` plays the cases of `seeds.json`: a minute of recorded ones, and each that
ever broke the criterion.
"""
