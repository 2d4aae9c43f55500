"""Measuring: the table of rows, rounds, peers, and the report that is made of them."""
