"""A bucket of an S3-compatible store; its listing tells what changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from infra.progress import Quiet
from infra.servers.s3 import S3Server, available, obtain
from infra.sources_check.play import TENANT, Play, Sees, Step, all_see
from infra.sources_check.stage import Stage

SOURCE, BUCKET = "bucket", "company"
PEOPLE = ("ann", "bob")
_all = partial(all_see, PEOPLE)


class S3System:
    """See the module. ``cache`` is where the server's program is kept."""

    name = "s3"

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._server: S3Server | None = None
        self._client: Any = None

    def available(self) -> str | None:
        """Whether the server is there, or can be built."""
        return None if available(self._cache) else "the S3 server cannot be built: Go is not installed"

    def start(self, folder: Path) -> Play:
        """Serve, make a bucket, write a few objects."""
        import boto3

        folder.mkdir(parents=True, exist_ok=True)
        server = self._server = S3Server(obtain(self._cache, Quiet()), folder)
        server.start()
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
        )
        self._client.create_bucket(Bucket=BUCKET)
        self._put("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann]}\n")
        self._put(".access.yaml", "allow: [everyone]\n")
        self._put("eng/.access.yaml", "allow: ['group:eng']\n")
        self._put("start.md", "# Start\n\nThe manatee bucket begins here.\n")
        self._put("eng/deploy.md", "# Deploying\n\nThe narwhal release goes out at noon.\n")
        return Play(
            self.name,
            {SOURCE: "poll"},
            self._steps,
            lambda stage: iter(()),
            begins=(
                *_all("manatee bucket"),
                Sees("ann", "narwhal release"),
                Sees("bob", "narwhal release", False),
            ),
            settings=[
                {
                    "name": SOURCE,
                    "tenant": TENANT,
                    "type": "s3",
                    "bucket": BUCKET,
                    "endpoint": server.endpoint,
                    "access_key": server.access_key,
                    "secret_key": server.secret_key,
                    "walk_s": 1.0,
                }
            ],
        )

    def ready(self, stage: Stage) -> None:
        """Nothing waits for the product."""

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()

    def _steps(self, stage: Stage) -> Iterator[Step]:
        yield Step(
            "an object is put",
            lambda: self._put("2025/rota.md", "The beluga rota begins on Monday."),
            _all("beluga rota"),
        )
        yield Step(
            "another one of the same name in another folder",
            lambda: self._put("2026/rota.md", "The vaquita rota begins on Friday."),
            (*_all("vaquita rota"), *_all("beluga rota")),
        )
        yield Step(
            "it is overwritten",
            lambda: self._put("2026/rota.md", "The orca rota is the new one."),
            (*_all("orca rota"), *_all("vaquita rota", False)),
        )
        yield Step(
            "somebody joins a group",
            lambda: self._put("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann, bob]}\n"),
            _all("narwhal release"),
        )
        yield Step(
            "somebody leaves it",
            lambda: self._put("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann]}\n"),
            (Sees("ann", "narwhal release"), Sees("bob", "narwhal release", False)),
        )
        yield Step(
            "a folder is closed",
            lambda: self._put("2025/.access.yaml", "allow: ['group:eng']\n"),
            (Sees("ann", "beluga rota"), Sees("bob", "beluga rota", False)),
        )
        yield Step("an object is deleted", lambda: self._delete("2026/rota.md"), _all("orca rota", False))

    def _put(self, key: str, text: str) -> None:
        self._client.put_object(Bucket=BUCKET, Key=key, Body=text.encode())

    def _delete(self, key: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=key)
