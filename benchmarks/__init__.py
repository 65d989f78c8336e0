"""Side-by-side measurements: each module prints a table and writes JSON. Never imported by the product."""
