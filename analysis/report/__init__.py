"""The report: sections made of tables and figures, one HTML file."""
