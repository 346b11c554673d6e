"""The two wire formats of embedding endpoints: OpenAI-compatible (by its SDK) and TEI-style (plain HTTP).

A wire sends one request and says what came back, or raises ``Failed``; repetitions and checks are the caller's.
Error texts name neither keys nor the texts that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.calls import Calls
from pipeline.errors import ConfigError
from pipeline.settings import EndpointSettings
from schemas.generation import EncoderSpec

if TYPE_CHECKING:
    import httpx
    from openai import AsyncOpenAI

SAID = 200  # characters of a server's own words that are passed on
# An answer may name the exact edition of the model that was asked for.
_EDITION = re.compile(r"-(v?\d+|\d{4}-\d{2}-\d{2})")


class Failed(Exception):
    """A request without a usable answer. ``status`` is None where none came; ``retry_after`` is in seconds."""

    def __init__(self, problem: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True)
class Answer:
    """One row a text, in the order of the texts; ``tokens`` as the server counted them, None where it does not."""

    rows: list[Any]
    tokens: int | None


class Wire(Protocol):
    """One endpoint's format."""

    def embed(self, texts: Sequence[str], timeout_s: float) -> Answer:
        """Raises Failed, and ConfigError when the answer is another model's."""
        ...

    def confirm(self, timeout_s: float) -> None:
        """Ask what is served. Raises Failed, and ConfigError when it is not what the generation says."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def wire_of(spec: EncoderSpec, endpoint: EndpointSettings) -> Wire:
    """The wire of a spec's provider. Raises ConfigError when its library is missing."""
    return OpenAiWire(spec, endpoint) if spec.provider == "openai" else TeiWire(spec, endpoint)


class OpenAiWire:
    """POST /embeddings under the base address, which usually ends in /v1."""

    def __init__(self, spec: EncoderSpec, endpoint: EndpointSettings) -> None:
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        except ImportError as error:
            raise ConfigError(
                "encoder.provider", "the package openai is not installed", "Install the extra 'endpoints'."
            ) from error
        self._spec = spec
        self._key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
        # the SDK insists on a key, servers without one ignore it
        self._calls = Calls("encoder-endpoint")
        self._client: AsyncOpenAI = AsyncOpenAI(
            base_url=endpoint.url, api_key=self._key or "none", max_retries=0, timeout=endpoint.timeout_s,
            http_client=DefaultAsyncHttpxClient(follow_redirects=False),  # texts go to no other address
        )  # fmt: skip
        # only these models can shorten their vectors; others refuse the field
        self._extra: dict[str, Any] = (
            {"dimensions": spec.dimension} if spec.model.startswith("text-embedding-3") else {}
        )

    def embed(self, texts: Sequence[str], timeout_s: float) -> Answer:
        """See Wire."""
        import openai

        try:
            answer = self._calls.run(
                lambda: self._client.embeddings.create(
                    input=list(texts), model=self._spec.model, encoding_format="float", timeout=timeout_s, **self._extra
                ),
                timeout_s,
            )
        except openai.APIStatusError as error:
            raise Failed(
                _said(error.status_code, error.body, self._key), error.status_code, _seconds(error.response.headers)
            ) from None
        except openai.OpenAIError as error:
            raise Failed(f"no answer ({type(error).__name__})") from None
        except TimeoutError:
            raise Failed("no answer in time") from None
        except ValueError as error:
            raise Failed(f"the answer cannot be read ({type(error).__name__})") from None
        _same_model(self._spec, getattr(answer, "model", None))
        items = answer.data or []
        if sorted(item.index for item in items) != list(range(len(texts))):
            raise Failed(f"{len(texts)} texts were sent, vectors came for {len(items)} or for others")
        rows = [item.embedding for item in sorted(items, key=lambda item: item.index)]
        usage = getattr(answer, "usage", None)
        return Answer(rows, getattr(usage, "total_tokens", None) or getattr(usage, "prompt_tokens", None))

    def confirm(self, timeout_s: float) -> None:
        """Every answer names its model."""

    def close(self) -> None:
        """See Wire."""
        self._calls.close(self._client.close)


class TeiWire:
    """POST /embed and GET /info."""

    def __init__(self, spec: EncoderSpec, endpoint: EndpointSettings) -> None:
        import httpx

        self._spec = spec
        self._key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._calls = Calls("encoder-endpoint")
        self._client: httpx.AsyncClient = httpx.AsyncClient(
            base_url=endpoint.url.rstrip("/"), headers=headers, timeout=endpoint.timeout_s, follow_redirects=False
        )

    def embed(self, texts: Sequence[str], timeout_s: float) -> Answer:
        """See Wire."""
        # never truncated: a text that is too long must be refused, not cut
        body = {"inputs": list(texts), "truncate": False, "normalize": self._spec.normalize}
        answer = self._asked("POST", "/embed", timeout_s, body)
        rows = _json(answer)
        if not isinstance(rows, list) or len(rows) != len(texts):
            raise Failed(f"{len(texts)} texts were sent, the answer is not a list of as many vectors")
        tokens = answer.headers.get("x-compute-tokens", "")
        return Answer(rows, int(tokens) if tokens.isdecimal() else None)

    def confirm(self, timeout_s: float) -> None:
        """See Wire. A server without /info is judged by its vectors alone."""
        try:
            told = _json(self._asked("GET", "/info", timeout_s))
        except Failed as error:
            if error.status == 404:
                return
            raise
        if not isinstance(told, dict):
            raise Failed("/info does not answer with an object")
        _same_model(self._spec, told.get("model_id"))
        revision = told.get("model_sha")
        if revision and self._spec.revision and revision != self._spec.revision:
            raise ConfigError(
                "encoder.revision",
                f"the endpoint {self._spec.endpoint} serves revision {revision}, the generation says "
                f"{self._spec.revision}",
                "Serve the revision that the generation was made with, or create a new generation.",
            )
        limit = told.get("max_input_length")
        if isinstance(limit, int) and limit < self._spec.max_tokens:
            raise ConfigError(
                "encoder.max_tokens",
                f"the endpoint {self._spec.endpoint} reads {limit} tokens, the generation says {self._spec.max_tokens}",
                "Raise the server's limit, or declare a generation with fewer tokens.",
            )

    def close(self) -> None:
        """See Wire."""
        self._calls.close(self._client.aclose)

    def _asked(self, method: str, path: str, timeout_s: float, body: object = None) -> httpx.Response:
        import httpx

        try:
            answer = self._calls.run(
                lambda: self._client.request(method, path, json=body, timeout=timeout_s), timeout_s
            )
        except TimeoutError:
            raise Failed("no answer in time") from None
        except httpx.HTTPError as error:
            raise Failed(f"no answer ({type(error).__name__})") from None
        if not answer.is_success:
            try:
                told = answer.json()
            except ValueError:
                told = None
            raise Failed(_said(answer.status_code, told, self._key), answer.status_code, _seconds(answer.headers))
        return answer


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise Failed("the answer is not JSON") from None


def _same_model(spec: EncoderSpec, named: object) -> None:
    """A server may say nothing, the same name, or the edition of that name."""
    if not named or named == spec.model:
        return
    edition = str(named).removeprefix(spec.model)
    if edition != named and _EDITION.fullmatch(edition):
        return
    raise ConfigError(
        "encoder.model",
        f"the endpoint {spec.endpoint} serves {str(named)[:SAID]}, the generation's encoder is {spec.model}",
        "Correct the endpoint's address, or create a generation for that model.",
    )


def _said(status: int, body: object, key: str) -> str:
    """The status with the server's error kind or message, shortened, without the key."""
    told: object = body
    while isinstance(told, Mapping):
        told = told.get("error") or told.get("message") or told.get("detail")
    words = re.sub(r"\s+", " ", told)[:SAID] if isinstance(told, str) else ""
    if key:
        words = words.replace(key, "***")
    return f"status {status}{': ' if words else ''}{words}"


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds; a date there is left to the usual waits."""
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None
