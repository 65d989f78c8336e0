"""Which runs of a campaign have the same bits: python which_agree.py runs/"""

import sys

import fpna

if __name__ == "__main__":
    runs = fpna.load(*sys.argv[1:])
    verdict = fpna.verdict(runs)
    print(verdict)
    print(verdict.groups[["badge", "words", "ranks", "runs", "results"]].to_string(index=False))
    for state, own in runs.runs[runs.runs["complete"]].groupby("state", sort=False):
        print(state[:12], ", ".join(own["run"]))
