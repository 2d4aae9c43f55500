"""Moving a projection between LakeFS and a folder: list, fetch, compare, stage."""
