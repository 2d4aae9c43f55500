"""A function on pandas columns, whose code is a package of the author's own."""
