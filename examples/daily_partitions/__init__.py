"""A table in partitions of one day each, of which every run replaces one."""
