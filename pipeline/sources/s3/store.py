"""The store's API: one page of keys, one object; whose fault it is when that fails."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.settings_sources import S3Settings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.remote.contract import RateLimited

PAGE = 1000
MOST_PATIENCE_S = 300.0
# Refusals of the account as a whole: they say nothing about an object.
_ACCOUNT = {
    "AccountProblem", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "NotSignedUp", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
}  # fmt: skip
_PATIENCE = {"SlowDown", "RequestLimitExceeded", "ThrottlingException", "TooManyRequests", "ServiceUnavailable"}


class Missing(Exception):
    """The store says that there is no such object."""


class Refused(Exception):
    """The store does not give this object, and would give others."""


@dataclass(frozen=True, slots=True)
class Item:
    """An object as it was listed or read. ``modified``: seconds since the epoch."""

    key: str
    etag: str
    size: int
    modified: int

    @property
    def revision(self) -> str:
        """Equal while the object is. The ETag alone is no hash of the content: parts and encryption change it."""
        return f"{self.etag}:{self.size}:{self.modified}"


@dataclass(frozen=True)
class Keys:
    """One page of a listing. ``at``: the store's clock, s since the epoch, None where it did not say."""

    items: tuple[Item, ...]
    next: str | None
    at: int | None


class Store:
    """One bucket. It is asked, and asked once: whoever asks decides about asking again."""

    def __init__(self, settings: S3Settings, clock: Clock, client: Any = None) -> None:
        """``client``: another one than boto3 makes of the settings."""
        self._bucket, self._clock = settings.bucket, clock
        self._client = client if client is not None else _client(settings)
        self._limited_in_a_row = 0
        self._known = False  # whether the bucket ever answered
        self.reach = Reach()

    def keys(self, prefix: str, at: str | None) -> Keys:
        """A page of keys in the order of their UTF-8 bytes. ``at``: ``next`` of the page before.

        Raises SourceUnavailable, RateLimited, ConfigError.
        """
        given = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": PAGE}
        if at is not None:
            given["StartAfter" if at.startswith("k") else "ContinuationToken"] = at[1:]
        try:
            answer = self._ask(self._client.list_objects_v2, given)
        except (Missing, Refused) as error:
            self.reach.failures += 1
            raise SourceUnavailable(f"bucket {self._bucket} cannot be listed: {error}; grant s3:ListBucket") from error
        items = tuple(
            Item(one["Key"], one.get("ETag", "").strip('"'), one["Size"], int(one["LastModified"].timestamp()))
            for one in answer.get("Contents", ())
        )
        return Keys(items, _next(answer, items), _date(answer))

    def get(self, key: str, most: int) -> tuple[Item, bytes]:
        """An object, ``most`` bytes at most, and what it was in the moment of reading: one answer holds both.

        Raises Missing, Refused, and as ``keys`` does.
        """
        answer = self._ask(self._client.get_object, {"Bucket": self._bucket, "Key": key})
        modified = int(answer["LastModified"].timestamp())  # a header tells whole seconds, a listing more
        item = Item(key, answer.get("ETag", "").strip('"'), answer["ContentLength"], modified)
        body = answer["Body"]
        try:
            data = body.read(most)
        except (BotoCoreError, OSError) as error:
            raise self._away(error) from error
        finally:
            body.close()
        if len(data) < min(most, item.size):
            raise self._away(OSError(f"the answer ended after {len(data)} of {item.size} bytes"))
        return item, _plain(data, answer.get("ContentEncoding", ""), most)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _ask(self, method: Any, given: dict[str, Any]) -> Any:
        now = self._clock.elapsed()
        if now < self.reach.waiting_until:
            raise RateLimited("the store asked for patience", self.reach.waiting_until - now)
        self.reach.requests += 1
        try:
            answer = method(**given)
        except ClientError as error:
            raise self._judge(error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise ConfigError("sources.access_key", str(error).rstrip("."), "Set access_key and secret_key.") from error
        except ParamValidationError as error:
            if "bucket" in str(error).lower():
                raise ConfigError("sources.bucket", f"{self._bucket!r} is no bucket's name", "Correct it.") from error
            raise Refused(str(error)) from error
        except (BotoCoreError, OSError) as error:
            raise self._away(error) from error
        self._limited_in_a_row, self._known = 0, True
        return answer

    def _judge(self, error: ClientError) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        meta = error.response.get("ResponseMetadata", {})
        status = int(meta.get("HTTPStatusCode", 0))
        if code == "NoSuchBucket" and self._known:
            return self._away(OSError("the bucket is gone: nothing is taken for deleted; see sources.bucket"))
        if code == "NoSuchBucket":
            return ConfigError("sources.bucket", f"there is no bucket {self._bucket!r}", "Name one that is there.")
        if code == "NoSuchKey":
            return Missing(code)
        if status == 429 or code in _PATIENCE:
            return self._limit(meta.get("HTTPHeaders", {}).get("retry-after"), code)
        if code in _ACCOUNT or status == 401:
            return self._away(OSError(f"the account is refused ({code}): see access_key, secret_key and region"))
        if 400 <= status < 500 and status != 404:
            return Refused(code)
        # A 404 that does not name the key comes from something that stands before the store.
        return self._away(OSError(f"it answered {status} {code}"))

    def _limit(self, header: str | None, code: str) -> RateLimited:
        self._limited_in_a_row += 1
        try:
            wait = float(header or "")
        except ValueError:
            wait = 2.0 ** min(self._limited_in_a_row - 1, 8)
        wait = min(max(wait, 0.1), MOST_PATIENCE_S)
        self.reach.limited += 1
        self.reach.waiting_until = self._clock.elapsed() + wait
        return RateLimited(f"the store asks for patience ({code}); asked again in {wait:.0f} s", wait)

    def _away(self, error: Exception) -> SourceUnavailable:
        self.reach.failures += 1
        return SourceUnavailable(f"the store does not answer: {error}"[:500])


def _plain(data: bytes, encoding: str, most: int) -> bytes:
    """The bytes of an object that was stored compressed, as files for browsers often are; others as they are."""
    if "gzip" not in encoding.lower():
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, most)
    except zlib.error:
        return data


def _next(answer: dict[str, Any], items: tuple[Item, ...]) -> str | None:
    """Where the listing goes on: behind a key, which outlives every token."""
    if not answer.get("IsTruncated"):
        return None
    return f"k{items[-1].key}" if items else f"t{answer['NextContinuationToken']}"


def _date(answer: dict[str, Any]) -> int | None:
    try:
        at = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp())


def _client(settings: S3Settings) -> Any:
    keys = {}
    if settings.access_key is not None and settings.secret_key is not None:
        keys = {
            "aws_access_key_id": settings.access_key.get_secret_value(),
            "aws_secret_access_key": settings.secret_key.get_secret_value(),
        }
    elif settings.access_key is not None or settings.secret_key is not None:
        raise ConfigError("sources.access_key", "is given without its secret_key or the reverse", "Set both, or none.")
    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        config=Config(
            connect_timeout=settings.timeout_s,
            read_timeout=settings.timeout_s,
            retries={"total_max_attempts": 1},
            signature_version="s3v4",
            # Other stores know neither a name for each bucket nor the newer checksums.
            s3={"addressing_style": "path" if settings.endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
        **keys,
    )
