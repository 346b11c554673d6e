"""MediaWiki's action API: one session, and what its errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from pipeline.clock import Clock, micros_of
from pipeline.errors import ConfigError
from pipeline.settings_sources import MediaWikiSettings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.remote.http import HttpApi

Reply = dict[str, Any]
MAX_PAGES = 10_000
"""Answers to one question that is asked to its end."""
LIMITS = frozenset({"ratelimited", "maxlag", "readonly", "actionthrottledtext"})
DENIED = frozenset({"accessdenied", "cannotviewtitle", "permissiondenied"})
"""One page that we may not read fails a whole question about many."""
SESSION_LOST = frozenset({"assertuserfailed", "assertnameduserfailed", "readapidenied"})


class Refused(SourceUnavailable):
    """The wiki refused a question; ``code`` is its own word for why."""

    def __init__(self, code: str, info: str) -> None:
        super().__init__(f"the wiki answered {code}: {info[:300]}")
        self.code = code


class WikiApi:
    """Asks one wiki, signed in where the settings name an account. Raises Refused, RateLimited, SourceUnavailable or,
    where the account cannot sign in, ConfigError."""

    def __init__(self, settings: MediaWikiSettings, clock: Clock, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._http = HttpApi(
            settings.url,
            clock,
            timeout_s=settings.timeout_s,
            per_second=settings.requests_per_s,
            transport=transport,
        )
        self._signed_in = False

    @property
    def reach(self) -> Reach:
        """The way to the wiki."""
        return self._http.reach

    def ask(self, action: str, params: Mapping[str, Any], *, post: bool = False) -> Reply:
        """One question. A session that has ended is renewed once."""
        if self._settings.username is not None and not self._signed_in:
            self._sign_in()
        try:
            return self._once(action, params, post=post, known=self._signed_in)
        except Refused as error:
            if error.code not in SESSION_LOST or not self._signed_in:
                raise
        self._sign_in()
        return self._once(action, params, post=post, known=True)

    def query(self, params: Mapping[str, Any]) -> Reply:
        """One ``action=query``; ``batchcomplete`` and ``continue`` are as the wiki says."""
        return self.ask("query", params)

    def all(self, params: Mapping[str, Any]) -> Iterator[Reply]:
        """A query asked to its end."""
        more: Mapping[str, Any] = {}
        for _ in range(MAX_PAGES):
            answer = self.query({**params, **more})
            yield answer
            following = answer.get("continue")
            if following is None:
                return
            if following == more:
                break
            more = following
        raise SourceUnavailable("the wiki's list does not end")

    def titled(self, titles: Sequence[str], params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The pages of many titles; where one must not be asked for, the others all the same."""
        try:
            pages = self.query({**params, "titles": "|".join(titles)}).get("query", {}).get("pages", [])
        except Refused as error:
            if error.code not in DENIED:
                raise
            if len(titles) > 1:
                half = len(titles) // 2
                yield from self.titled(titles[:half], params)
                yield from self.titled(titles[half:], params)
            return
        yield from pages

    def file(self, address: str, most: int) -> tuple[int, bytes]:
        """Status and bytes of a file, no more than ``most`` + 1 of them."""
        if address.startswith("//"):
            address = f"{self._settings.url.partition(':')[0]}:{address}"
        response, body = self._http.body(address, most)
        return response.status_code, body

    def close(self) -> None:
        """Disconnect."""
        self._http.close()

    def _once(self, action: str, params: Mapping[str, Any], *, post: bool, known: bool) -> Reply:
        given = {name: value for name, value in params.items() if value is not None}
        fixed = {"action": action, "format": "json", "formatversion": 2, "maxlag": 5, "curtimestamp": 1}
        whole = {**fixed, **given, **({"assert": "user"} if known else {})}
        response = self._http.post("/api.php", whole) if post else self._http.get("/api.php", whole)
        return self._judged(response)

    def _judged(self, response: httpx.Response) -> Reply:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SourceUnavailable(
                f"api.php did not answer in JSON (status {response.status_code}): check url in the settings"
            )
        error = answer.get("error")
        if isinstance(error, dict):
            code, info = str(error.get("code", "unknown")), str(error.get("info", ""))
            if code in LIMITS:
                patience = response.headers.get("retry-after", "")  # MediaWiki writes whole seconds
                raise self._http.limit(float(patience) if patience.isdigit() else None, f"the wiki said {code}")
            raise Refused(code, info)
        return answer

    def _sign_in(self) -> None:
        settings = self._settings
        assert settings.username is not None and settings.password is not None
        self._signed_in = False
        self._http.cookies().clear()  # a session that ended must not be offered again
        token = self._once("query", {"meta": "tokens", "type": "login"}, post=False, known=False)
        given = {
            "lgname": settings.username,
            "lgpassword": settings.password.get_secret_value(),
            "lgtoken": token["query"]["tokens"]["logintoken"],
        }
        login = self._once("login", given, post=True, known=False).get("login", {})
        if login.get("result") == "Success":
            self._signed_in = True
            return
        if login.get("result") == "Throttled" or "wait" in login:
            raise self._http.limit(float(login.get("wait", 300)), "too many sign-ins")
        raise ConfigError(
            f"sources.{settings.name}.password",
            f"the wiki does not let {settings.username!r} sign in ({login.get('reason', login.get('result'))})",
            "Make a bot password at Special:BotPasswords and write it, with its name Account@bot, into the settings.",
        )


def moment(text: str) -> int:
    """Microseconds of a timestamp as the API writes it."""
    return micros_of(text.replace("Z", "+00:00"))


def updated_at(page: Mapping[str, Any]) -> int | None:
    """Microseconds of the last update of a page's text or file, of those dates that can be read."""
    dates = []
    for one in [*page.get("revisions", []), *page.get("imageinfo", [])]:
        with contextlib.suppress(ValueError):
            dates.append(moment(str(one.get("timestamp"))))
    return max(dates, default=None)


def stamp(micros: int) -> str:
    """A timestamp as the API reads it; whole seconds, rounded down."""
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
