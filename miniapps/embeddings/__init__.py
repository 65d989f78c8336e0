"""Tables of embeddings over ranks: who holds which rows and columns, bags that are looked up, gradients that come back.

A table is cut into blocks of rows that depend on the problem alone. Rows travel by all-to-all-v; sums of bags and of
gradients have an order that does not depend on the sharding, so that it touches no bit.
"""
