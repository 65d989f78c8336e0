"""PETSc and SLEPc by Python: conjugate gradients on a chain, its largest eigenvalue, a sum that cancels."""

import sys

import petsc4py

petsc4py.init(sys.argv)

from petsc4py import PETSc  # noqa: E402

n = 200
a = PETSc.Mat().createAIJ([n, n], nnz=3)
first, last = a.getOwnershipRange()
for i in range(first, last):
    a[i, i] = 2.01 + (i % 7) / 3
    for j in (i - 1, i + 1):
        if 0 <= j < n:
            a[i, j] = -1
a.assemble()
b = a.createVecLeft()
b.setArray([1 / (i + 1) for i in range(first, last)])
x = b.duplicate()
ksp = PETSc.KSP().create()
ksp.setOperators(a)
ksp.setType("cg")
ksp.getPC().setType("jacobi")
ksp.setTolerances(rtol=1e-10)
ksp.solve(b, x)
found = [x.norm(), x.dot(b)]
if "slepc" in sys.argv:
    from slepc4py import SLEPc

    eps = SLEPc.EPS().create()
    eps.setOperators(a)
    eps.setProblemType(SLEPc.EPS.ProblemType.HEP)
    eps.solve()
    found.append(eps.getEigenvalue(0).real)
small = PETSc.Vec().createMPI(4)
for i in range(*small.getOwnershipRange()):
    small[i] = [1.0, 1e16, -1e16, 1.0][i]
small.assemble()
found.append(small.sum())
if PETSc.COMM_WORLD.rank == 0:
    print("result", *map(float.hex, found))
