"""Training of models that are written for one device, over a mesh of ranks (`miniapps.partition`).

    mpirun -n 4 python -m miniapps.training --model gpt --data text --recipe dp+tp --mesh data=2,model=2

problem     sizes and blocks of a model from the options; its inputs at a step
choice      what is refused; the recipe, the mesh and the axes that follow where no option gives them
trainer     a step, recorded; checkpoints of whole tensors, for any other mesh
"""
