"""Query embeddings: the encoder of each generation loaded once, recent queries remembered.

Queries have threads of their own; encoders are loaded in another one, so that no query waits for the next generation's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pipeline.errors import EncoderUnavailable, HeadwaterError
from pipeline.ports import Embedder, Vectors
from schemas.generation import Generation

MAX_CACHED = 4096

LoadEncoder = Callable[[Generation], Embedder]


class Encoders:
    """Embeds queries with the encoder of the generation that answers, never with another (invariant 7)."""

    def __init__(self, load: LoadEncoder, threads: int = 1) -> None:
        self._load = load
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="query-encoder")
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder-loader")
        self._encoders: dict[str, Embedder] = {}
        self._cache: OrderedDict[tuple[str, str], Vectors] = OrderedDict()

    @staticmethod
    def _key(generation: Generation) -> str:
        return generation.encoder.model_dump_json() + generation.backend.name

    def warm(self, generation: Generation) -> bool:
        """Whether the generation's encoder is loaded and has embedded a text."""
        return self._key(generation) in self._encoders

    async def prepare(self, generation: Generation) -> None:
        """Load the generation's encoder and embed one text. Raises EncoderUnavailable."""
        if not self.warm(generation):
            await asyncio.get_running_loop().run_in_executor(self._loader, self._encoder, generation)

    def keep(self, generations: Iterable[Generation]) -> None:
        """Release the encoders and remembered queries of all other generations."""
        wanted = {self._key(generation) for generation in generations}
        for key in [key for key in self._encoders if key not in wanted]:
            close = getattr(self._encoders.pop(key), "close", None)
            if close is not None:  # of an endpoint: its connections
                self._loader.submit(close)
        for entry in [entry for entry in self._cache if entry[0] not in wanted]:
            del self._cache[entry]

    async def embed(self, generation: Generation, text: str) -> Vectors:
        """Unit vector of the query, shape (1, dimension). Raises EncoderUnavailable."""
        key = (self._key(generation), text)
        found = self._cache.get(key)
        if found is None:
            await self.prepare(generation)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._executor, self._embed, generation, text)
            self._cache[key] = found
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return found

    def embed_if_warm(self, generation: Generation, text: str) -> Vectors | None:
        """As ``embed``, from another thread; None where the encoder is not loaded. Nothing is remembered."""
        return self._executor.submit(self._embed, generation, text).result() if self.warm(generation) else None

    def _embed(self, generation: Generation, text: str) -> Vectors:
        try:
            return self._encoder(generation).embed_query(text)
        except HeadwaterError:
            raise
        except Exception as error:
            raise EncoderUnavailable(f"the encoder failed: {type(error).__name__}") from error

    def _encoder(self, generation: Generation) -> Embedder:
        key = self._key(generation)
        encoder = self._encoders.get(key)
        if encoder is None:
            try:
                encoder = self._load(generation)
                encoder.embed_query("warm up")
            except HeadwaterError:
                raise
            except Exception as error:
                raise EncoderUnavailable(f"the encoder did not load: {type(error).__name__}") from error
            self._encoders[key] = encoder
        return encoder

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loader.shutdown(wait=False, cancel_futures=True)
