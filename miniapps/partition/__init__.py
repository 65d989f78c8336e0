"""Runs a training step written for one device on any mesh of ranks, from a few annotations (GSPMD, arXiv 2105.04663).

Logical axes, each cut into blocks of the problem, propagate through the graph of the step. A mesh only assigns the
blocks to ranks. So every choice that affects bits is made once, without the mesh. See docs/explanation/partition.md.

    graph = export.export(module, inputs)               # torch to plain nodes: `graph`
    plan = plan.plan(graph, axes, annotations)          # rules, propagation, reshards, reductions: `steps`
    mesh = mesh.parse("data=2,model=2", size)           # owners of blocks

`cuts.steps` specifies a plan for executors.
"""
