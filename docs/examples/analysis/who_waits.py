"""Seconds in collectives by rank, and when each entered the first: python who_waits.py runs/four"""

import sys

import fpna

if __name__ == "__main__":
    events = fpna.timeline(sys.argv[1])
    inside = events[events["kind"] == "collective"]
    seconds = (inside["end"] - inside["start"]).groupby(inside["rank"]).sum() / 1e9
    first = inside.groupby("rank")["start"].min() / 1e9
    print(seconds.to_frame("s in collectives").assign(entered_first_at_s=first).round(4).to_string())
