"""Seconds of the slowest rank in each region of each run: python where_time_goes.py runs/"""

import sys

import fpna

if __name__ == "__main__":
    runs = fpna.load(*sys.argv[1:])
    seconds = (
        runs.events.groupby(["run", "repeat", "rank", "name"], observed=True)["exclusive_ns"].sum() / 1e9
    )
    slowest = seconds.groupby(["run", "repeat", "name"], observed=True).max()
    print(slowest.unstack("name").T.round(3).to_string())
