"""Query embeddings: the encoder of each generation loaded once, recent queries remembered.

Each encoder has a lane of its own, so that queries which arrive together share a call of the model. Encoders are
loaded in another thread: no query waits for the next generation's. An endpoint that failed several times in a row is
left alone for a while; meanwhile its queries are refused at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from pipeline.errors import DocumentError, EncoderUnavailable, HeadwaterError, QueryRefused, Retry
from pipeline.observe import Metrics
from pipeline.ports import Embedder, Vectors
from pipeline.settings_query import InferenceSettings
from query_service.inference.breaker import Breaker
from query_service.inference.lane import Busy, Lane
from schemas.generation import Generation

MAX_CACHED = 4096
MAX_BYTES = 32_000_000  # of remembered queries and their vectors
CONNECTIONS = 4  # requests to one endpoint at once
SHORTEST = 32  # characters to which a passage is cut at most

LoadEncoder = Callable[[Generation], Embedder]


class AsPassage(str):
    """A text that is embedded as a passage, among queries."""

    __slots__ = ()


@dataclass(frozen=True)
class _Loaded:
    encoder: Embedder
    lane: Lane[str, Vectors]

    def close(self) -> None:
        self.lane.close()
        close = getattr(self.encoder, "close", None)
        if close is not None:  # of an endpoint: its connections
            close()


class Encoders:
    """Embeds queries with the encoder of the generation that answers, never with another (invariant 7)."""

    def __init__(
        self, load: LoadEncoder, settings: InferenceSettings | None = None, metrics: Metrics | None = None
    ) -> None:
        self._load = load
        self._settings = settings if settings is not None else InferenceSettings()
        self._metrics = metrics if metrics is not None else Metrics()
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder-loader")
        self._loaded: dict[str, _Loaded] = {}
        self._breakers: dict[str, Breaker] = {}
        self._cache: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._bytes = 0

    @staticmethod
    def _key(generation: Generation) -> str:
        return generation.encoder.model_dump_json() + generation.backend.name

    def warm(self, generation: Generation) -> bool:
        """Whether the generation's encoder is loaded and has embedded a text."""
        return self._key(generation) in self._loaded

    async def prepare(self, generation: Generation) -> None:
        """Load the generation's encoder and embed one text. Raises EncoderUnavailable."""
        if not self.warm(generation):
            await asyncio.get_running_loop().run_in_executor(self._loader, self._ready, generation)

    def keep(self, generations: Iterable[Generation]) -> None:
        """Release the encoders and remembered queries of all other generations."""
        wanted = {self._key(generation) for generation in generations}
        for key in [key for key in self._loaded if key not in wanted]:
            self._loader.submit(self._loaded.pop(key).close)
        for entry in [entry for entry in self._cache if entry[0] not in wanted]:
            self._drop(entry)
        self._tell()

    async def embed(self, generation: Generation, text: str) -> Vectors:
        """Unit vector of the query, shape (1, dimension). Raises EncoderUnavailable.

        A call that is cancelled before its turn reaches no model.
        """
        key = (self._key(generation), text)
        found = self._cache.get(key)
        if found is None:
            await self.prepare(generation)
            try:
                found = await asyncio.wrap_future(self._of(generation).lane.submit(text))
            except Exception as error:
                raise _told(error) from error
            self._metrics.count("headwater_cache_total", cache="embeddings", outcome="miss")
            self._remember(key, found)
        else:
            self._metrics.count("headwater_cache_total", cache="embeddings", outcome="hit")
            self._cache.move_to_end(key)
        return found

    def _remember(self, key: tuple[str, str], vector: Vectors) -> None:
        self._drop(key)  # two requests with the same query may both have asked
        self._cache[key] = vector
        self._bytes += _size(key, vector)
        while self._cache and (len(self._cache) > MAX_CACHED or self._bytes > MAX_BYTES):
            self._drop(next(iter(self._cache)))
        self._tell()

    def _drop(self, key: tuple[str, str]) -> None:
        vector = self._cache.pop(key, None)
        if vector is not None:
            self._bytes -= _size(key, vector)

    def _tell(self) -> None:
        self._metrics.set("headwater_cache_entries", len(self._cache), cache="embeddings")
        self._metrics.set("headwater_cache_bytes", self._bytes, cache="embeddings")

    async def embed_passage(self, generation: Generation, text: str) -> Vectors:
        """Unit vector of a text as one of a passage, shape (1, dimension); one that is too long is cut. Nothing is
        remembered. Raises EncoderUnavailable."""
        await self.prepare(generation)
        try:
            return await asyncio.wrap_future(self._of(generation).lane.submit(AsPassage(text)))
        except Exception as error:
            raise _told(error) from error

    def embed_if_warm(self, generation: Generation, text: str) -> Vectors | None:
        """As ``embed``, from another thread; None where the encoder is not loaded. Nothing is remembered."""
        loaded = self._loaded.get(self._key(generation))
        if loaded is None:
            return None
        try:
            return loaded.lane.submit(text).result()
        except Exception as error:
            raise _told(error) from error

    def _of(self, generation: Generation) -> _Loaded:
        loaded = self._loaded.get(self._key(generation))
        if loaded is None:
            raise EncoderUnavailable("the generation's encoder was released")
        return loaded

    def _ready(self, generation: Generation) -> None:
        key = self._key(generation)
        if key in self._loaded:
            return
        try:
            encoder = self._load(generation)
            encoder.embed_query("warm up")
        except HeadwaterError:
            raise
        except Exception as error:
            raise EncoderUnavailable(f"the encoder did not load: {type(error).__name__}") from error
        self._loaded[key] = _Loaded(encoder, self._lane(generation, encoder))

    def _lane(self, generation: Generation, encoder: Embedder) -> Lane[str, Vectors]:
        remote = generation.encoder.provider != "local"
        breaker = self._breaker(generation.encoder.endpoint) if remote else None

        def run(texts: Sequence[str]) -> Sequence[Vectors | Exception]:
            with nullcontext() if breaker is None else breaker.call():
                return _embedded(encoder, texts)

        return Lane(
            "encoder",
            run,
            self._metrics,
            batch=self._settings.batch,
            queue=self._settings.queue,
            window_s=self._settings.window_ms / 1000,
            workers=CONNECTIONS if remote else 1,  # a local one has threads of its own within a call
        )

    def _breaker(self, endpoint: str) -> Breaker:
        """One an endpoint, whatever number of generations it serves."""
        if endpoint not in self._breakers:
            self._breakers[endpoint] = Breaker(
                f"encoder:{endpoint}", self._settings.failures, self._settings.cool_s, self._metrics,
                spared=(QueryRefused,),
            )  # fmt: skip
        return self._breakers[endpoint]

    def close(self) -> None:
        """End the threads."""
        self._loader.shutdown(wait=False, cancel_futures=True)
        for loaded in self._loaded.values():
            loaded.close()


def _size(key: tuple[str, str], vector: Vectors) -> int:
    """Bytes of an entry; the text counts as UTF-8, the generation's name is shared."""
    return len(key[1].encode("utf-8", "surrogatepass")) + vector.nbytes


def _embedded(encoder: Embedder, texts: Sequence[str]) -> Sequence[Vectors | Exception]:
    """One call for all; where that fails because of a text, one call each, so that it fails alone."""
    many = getattr(encoder, "embed_queries", None)
    passages = any(isinstance(text, AsPassage) for text in texts)
    if len(texts) == 1:
        return [_vector(encoder, texts[0])]
    if many is not None and not passages:
        try:
            rows: Vectors = many(texts)
            return [rows[i : i + 1] for i in range(len(texts))]
        except Retry as error:
            if not isinstance(error, QueryRefused):
                raise
        except Exception:  # of one of the texts, perhaps: each is asked by itself
            pass
    return [_alone(encoder, text) for text in texts]


def _alone(encoder: Embedder, text: str) -> Vectors | Exception:
    try:
        return _vector(encoder, text)
    except Exception as error:
        return error


def _vector(encoder: Embedder, text: str) -> Vectors:
    """Shape (1, dimension)."""
    if not isinstance(text, AsPassage):
        return encoder.embed_query(text)
    cut = str(text)
    while True:
        try:
            return encoder.embed_documents([cut])
        except DocumentError:
            if len(cut) < SHORTEST:
                raise QueryRefused("the encoder cannot take this text") from None
            cut = cut[: len(cut) // 2]


def _told(error: Exception) -> HeadwaterError:
    if isinstance(error, Busy):
        return EncoderUnavailable("too many queries wait for the encoder")
    if isinstance(error, Retry) and not isinstance(error, EncoderUnavailable):
        return EncoderUnavailable(str(error))
    if isinstance(error, HeadwaterError):
        return error
    return EncoderUnavailable(f"the encoder failed: {type(error).__name__}")
