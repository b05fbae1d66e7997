"""An S3 server on loopback, and what programs need to find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket that is empty; this process and those it starts find its server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with pytest.MonkeyPatch.context() as environment:
            for name, value in {
                "AWS_ENDPOINT_URL": f"http://{host}:{port}",
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "us-east-1",
                "NO_PROXY": host,
                "no_proxy": host,
            }.items():
                environment.setenv(name, value)
            bucket = f"pgtick-{uuid4()}"
            boto3.client("s3").create_bucket(Bucket=bucket)
            yield f"s3://{bucket}"
    finally:
        server.stop()
