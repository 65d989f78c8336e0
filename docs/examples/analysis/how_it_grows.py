"""How the largest relative difference of two runs grows, step by step: python how_it_grows.py runs/ A B"""

import sys

import fpna

if __name__ == "__main__":
    *paths, a, b = sys.argv[1:]
    runs = fpna.load(*paths)
    print(fpna.compare(runs, a, b))
    values = fpna.growth(runs, a, b).query("kind == 'values'")
    print(
        values.pivot_table(index="step", columns="name", values="max_relative").to_string(float_format="%.2e")
    )
