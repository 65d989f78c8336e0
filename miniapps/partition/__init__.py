"""One training step, written for one device, on any mesh of ranks from a few annotations (GSPMD, arXiv 2105.04663).

Logical axes, each cut into blocks that belong to the problem, flow through the graph of the step; a mesh only says
which rank owns which blocks. So all that decides bits is decided once, without the mesh. See
docs/explanation/partition.md.

    graph = export.export(module, inputs)               # torch to plain nodes: `graph`
    plan = plan.plan(graph, axes, annotations)          # rules, propagation, reshards, reductions: `steps`
    mesh = mesh.parse("data=2,model=2", size)           # owners of blocks

`steps` says what an executor must know.
"""
