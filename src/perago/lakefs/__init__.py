"""LakeFS: the control plane through its API, the data plane through its S3 gateway."""
