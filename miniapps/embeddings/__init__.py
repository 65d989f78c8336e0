"""Tables of embeddings over ranks: the placement of rows and columns, lookups of bags, and updates by gradients.

A table is cut into blocks of rows that depend only on the problem. Rows are exchanged by all-to-all-v. Sums of bags and
of gradients have an order that does not depend on the sharding, so that the sharding changes no bit.
"""
