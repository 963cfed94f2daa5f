"""S3 URIs and ARNs, read."""

from __future__ import annotations


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key prefix of `s3://bucket/some/prefix`; a prefix that is not empty ends with `/`.

    Raises:
        ValueError: the text is not an S3 URI.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{uri!r} is not an S3 URI: write s3://bucket/prefix")
    return bucket, f"{prefix.rstrip('/')}/" if prefix else ""
