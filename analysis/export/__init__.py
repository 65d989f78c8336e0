"""Writes frames and traces in the formats of other tools: `tables` (CSV), and a module per format of FORMATS."""

FORMATS = {
    "perfetto": "Trace Event Format, JSON, gzip where FILE ends in .gz: ui.perfetto.dev, chrome://tracing",
    "otf2": "Open Trace Format 2, a directory: Vampir, Scalasca, otf2-print (package otf2)",
    "extrap": "Extra-P, JSON Lines, from several runs: models of how each region scales",
    "parquet": "the tables of runs, Parquet, a directory: DuckDB, Polars, pandas, R",
    "chakra": "Chakra execution traces, FILE.RANK.et for each rank: ASTRA-sim (package protobuf)",
}
