"""S3 on the local disk: s3proxy over the folder `data/s3`."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from prism_local import jars, java, layout
from prism_local.credentials import LAKE_BUCKET, REGION, STAGING_BUCKET
from prism_local.ports import LOCAL_OPENER, LOOPBACK
from prism_local.processes import Launch
from prism_local.service import Service

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3(Service):
    """The object store. Buckets are folders below `data/s3` and survive `down`."""

    name = "s3"
    needs_java = True

    @property
    def buckets(self) -> Path:
        """The folder of the buckets."""
        return self.context.place.data / "s3"

    def prepare(self) -> None:
        """Creates the folder of the buckets."""
        super().prepare()
        self.buckets.mkdir(parents=True, exist_ok=True)

    def launch(self, port: int) -> Launch:
        """Writes the settings with the secret into a private file, and returns how to start the server."""
        settings = self.folder / "s3proxy.properties"
        layout.write_private(settings, self._properties(port))
        # One collector thread, because a desktop's few cores are shared with Spark.
        command = [java.program(), "-Xmx512m", "-XX:+UseSerialGC", f"-Dprism.stack={self.marker}"]
        command += ["-jar", str(jars.path("s3proxy", self.context.place)), "--properties", str(settings)]
        logging = {"LOG_LEVEL": "warn", "JETTY_LOG_LEVEL": "warn"}
        return Launch(command, self.environment(logging), self.folder)

    def _properties(self, port: int) -> str:
        values = {
            "s3proxy.endpoint": f"http://{LOOPBACK}:{port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.ignore-unknown-headers": "true",  # Trino asks for attributes of objects in archives
            "s3proxy.identity": self.context.secrets.access_key,
            "s3proxy.credential": self.context.secrets.secret_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.buckets),
            # The provider requires these two, although a folder needs neither.
            "jclouds.identity": "local",
            "jclouds.credential": "local",
        }
        return java.properties(values)

    def is_ready(self, port: int) -> bool:
        """Whether the server speaks HTTP. A working server refuses an unsigned request."""
        try:
            LOCAL_OPENER.open(f"http://{LOOPBACK}:{port}/", timeout=2).close()
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return refusal.code in (400, 401, 403)
        except OSError:
            return False
        return True

    def settle(self, port: int) -> None:
        """Creates the buckets of the lake and of the staging objects."""
        if all((self.buckets / name).is_dir() for name in (LAKE_BUCKET, STAGING_BUCKET)):
            return
        client = self._client(port)
        try:
            present = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
            for name in (LAKE_BUCKET, STAGING_BUCKET):
                if name not in present:
                    client.create_bucket(Bucket=name)
        finally:
            client.close()

    def _client(self, port: int) -> "S3Client":
        import boto3  # half a second, needed at the first start only
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=f"http://{LOOPBACK}:{port}",
            region_name=REGION,
            aws_access_key_id=self.context.secrets.access_key,
            aws_secret_access_key=self.context.secrets.secret_key,
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )
