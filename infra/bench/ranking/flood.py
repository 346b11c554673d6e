"""Many clients at once, each asking again as soon as it is answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from infra.bench.search import K, Questions
from infra.bench.synthetic import SCOPES, TENANT, Corpus, person
from infra.commands.tokens import issue
from pipeline.settings import Settings

TIMEOUT_S = 30.0
PAUSE_S = 0.2  # after a refusal


@dataclass
class Flooded:
    """What all clients got. ``ms`` are answers alone; ``kinds`` counts errors by status or exception."""

    clients: int
    ms: list[float] = field(default_factory=list)
    refused: int = 0
    scored: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Requests that were neither answered nor told to wait."""
        return sum(self.kinds.values())


def flood(
    settings: Settings, corpus: Corpus, clients: int, seconds: float, first: int,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Flooded:  # fmt: skip
    """Ask for so long with so many clients. They are four people, so that nobody meets a limit of one caller's."""
    tokens = [issue(settings, person(scope), TENANT, 3600)[0] for scope in SCOPES]
    return asyncio.run(_flood(settings.query.address, tokens, Questions(corpus, first), clients, seconds, transport))


async def _flood(
    base: str, tokens: list[str], questions: Questions, clients: int, seconds: float,
    transport: httpx.AsyncBaseTransport | None,
) -> Flooded:  # fmt: skip
    found = Flooded(clients)
    begun = time.monotonic()
    pool = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(
        base_url=base, timeout=TIMEOUT_S, trust_env=False, limits=pool, transport=transport
    ) as http:

        async def one(number: int) -> None:
            headers = {"Authorization": f"Bearer {tokens[number % len(tokens)]}"}
            while time.monotonic() - begun < seconds:
                await _ask(http, headers, questions.take(), found)

        await asyncio.gather(*(one(number) for number in range(clients)))
    found.seconds = time.monotonic() - begun
    return found


async def _ask(http: httpx.AsyncClient, headers: dict[str, str], question: str, found: Flooded) -> None:
    asked = time.perf_counter()
    try:
        answer = await http.post("/v1/search", headers=headers, json={"query": question, "k": K, "cache": False})
    except httpx.HTTPError as error:
        found.kinds[type(error).__name__] += 1
        return
    if answer.status_code == 429:
        found.refused += 1
        await asyncio.sleep(PAUSE_S)
    elif answer.is_success:
        found.ms.append((time.perf_counter() - asked) * 1000)
        found.scored += int(json.loads(answer.content)["counts"]["reranked"])
    else:
        found.kinds[str(answer.status_code)] += 1
