"""LakeFS: the control plane through its SDK, the data plane through its S3 gateway."""
