# %% [markdown]
# # A campaign, from traces to a figure
# Jupyter opens this file as a notebook by jupytext; Python runs it as it is. `RUNS` names the directory of runs.

# %%
import os

import fpna

runs = fpna.load(os.environ.get("RUNS", "runs"))
runs.runs[["run", "app", "guarantee", "size", "complete", "wall_s"]]

# %% [markdown]
# The verdict first: are the bits what was promised?

# %%
verdict = fpna.verdict(runs)
print(verdict)
verdict.groups[["badge", "words", "ranks", "runs", "results"]]

# %% [markdown]
# Where do the first two runs of the worst group part, and why?

# %%
complete = runs.runs[runs.runs["complete"] & (runs.runs["guarantee"] == "none")]
a, b = (f"{run}:{repeat}" for run, repeat in complete[["run", "repeat"]].to_numpy()[:2])
difference = fpna.compare(runs, a, b)
print(difference, difference.row["next"], sep="\n")

# %% [markdown]
# How does the difference grow?

# %%
growth = fpna.growth(runs, a, b).query("kind == 'values' and max_relative > 0")
axes = growth.pivot_table(index="step", columns="name", values="max_relative").plot(
    logy=True, ylabel="largest relative difference"
)
axes.figure.savefig("growth.png")
