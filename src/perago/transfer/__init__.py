"""Move a projection between LakeFS and a folder: list, download, compare, stage."""
