"""What pages and terminals show: sections, tables, figures, axes."""
