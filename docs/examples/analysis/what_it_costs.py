"""The median time of complete runs by guarantee and ranks, and its ratio to `none`: python what_it_costs.py runs/"""

import sys

import fpna

if __name__ == "__main__":
    runs = fpna.load(*sys.argv[1:]).runs.query("complete")
    table = runs.pivot_table(
        index=["app", "problem", "size"], columns="guarantee", values="wall_s", aggfunc="median"
    )
    print(table.to_string(float_format="%.3f"))
    if "none" in table:
        print((table.div(table["none"], axis=0)).to_string(float_format="%.2f"))
    print("These are medians of separate launches; `fpna cost` pairs launches and gives an interval.")
