"""A slowly changing dimension: a Delta table with the history of every customer."""
