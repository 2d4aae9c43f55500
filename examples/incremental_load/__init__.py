"""A load that takes up each file of a landing folder once, by what changed since its last run."""
