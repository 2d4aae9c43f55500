"""Build the Spark settings with which ``s3a://REPOSITORY/REF/PATH`` addresses LakeFS."""

from __future__ import annotations

from perago.connections import LakeFSConnection

_CLOUD = "org.apache.spark.internal.io.cloud"
# The default committer renames, which LakeFS can only do by copying the data.
COMMITTER_SETTINGS = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    ),
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
}


def s3a_settings(lakefs: LakeFSConnection) -> dict[str, str]:
    """Build S3A's settings. They hold the secret: write them to a file of mode 0600 only."""
    hadoop = {
        "fs.s3a.endpoint": lakefs.gateway,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": lakefs.access_key_id,
        "fs.s3a.secret.key": lakefs.secret_access_key.get_secret_value(),
        # The keys above only: the default chain would look for AWS credentials on this machine.
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        ),
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": str(lakefs.gateway.startswith("https://")).lower(),
    }
    return {
        **{f"spark.hadoop.{key}": value for key, value in hadoop.items()},
        **COMMITTER_SETTINGS,
    }
