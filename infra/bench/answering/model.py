"""``answers``: what a small model on this machine writes, beside what is released of it. Never part of CI.

A model of half a billion parameters answers badly, and that is the point: how much of what it makes up gets past the
check. The sentences are written to a file for people to label, since no measure here knows whether they are true.
Questions are asked as people ask them, in style ``auto``: where nothing of the model's is left, sentences of the
sources stand in. What became of the model's own words is told beside it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from infra import ports
from infra.answer_run import answered, request_of
from infra.asking import QueryApi
from infra.bench.answering.wiki import Wiki, opened, spread
from infra.bench.report import Result, percentile, rounded
from infra.bench.session import Session
from infra.bench.sizes import QUICK
from infra.errors import InfraError
from infra.golden_world import environment
from pipeline.answer_report import Answered, score_answers
from pipeline.golden import FolderReaders, Question
from schemas.api_answer import AnswerResponse

NAME = "answers"
ALIAS = "local"
START_S = 300.0
ANSWERABLE, UNANSWERABLE = 40, 20
PASSAGES, TOKENS, WRITTEN = 2, 250, 80  # a small model on one core reads a few dozen tokens a second
F1 = 0.8


@dataclass(frozen=True)
class Model:
    """A server that is there already, or a file to start one with; where the sentences go."""

    server: str | None = None
    path: Path | None = None
    threads: int = 1
    sentences: Path | None = None
    minutes: float | None = None  # for so long at most; what was asked until then is told


def answers(session: Session, model: Model) -> Iterable[Result]:
    """One line: raw, checked, refused. Raises InfraError."""
    with _served(model) as url, environment(_variables(url)):
        wiki = opened(session, NAME)
        chosen = _questions(wiki, quick=session.sizes == QUICK)
        got: list[tuple[Answered, AnswerResponse]] = []
        end = time.monotonic() + 60 * model.minutes if model.minutes is not None else float("inf")
        with QueryApi(wiki.world.settings) as api:
            for question in chosen:
                if time.monotonic() > end:
                    break
                request = request_of(question, "auto", context=PASSAGES, budget=TOKENS)
                request = request.model_copy(update={"max_tokens": WRITTEN})
                reply = api.answer(question.user, question.tenant, request)
                got.append((answered(question, wiki.facts.get(question.id, ()), reply, wiki.corpus), reply))
                if model.sentences is not None:
                    write(model.sentences, got)
                session.progress("asking", len(got), len(chosen))
        yield _result(got, wiki)
        session.close_world()


def _variables(url: str) -> dict[str, str]:
    return {
        "HEADWATER_GENERATOR__URL": url,
        "HEADWATER_GENERATOR__MODEL": ALIAS,
        "HEADWATER_GENERATOR__TIMEOUT_S": "280",
        "HEADWATER_GENERATOR__ATTEMPTS": "1",
        "HEADWATER_GENERATOR__CONTEXT_TOKENS": "2048",
        "HEADWATER_ANSWER__DEADLINE_S": "290",
        "HEADWATER_ANSWER__HEED_REFUSALS": "false",
    }


def _questions(wiki: Wiki, *, quick: bool) -> list[Question]:
    """Answerable ones of every kind but other languages, and ones that nothing answers."""
    known = [q for q in wiki.answerable if q.kind != "language"]
    unknown = [q for q in wiki.questions if not q.answerable]
    few = 3 if quick else 0
    answerable, unanswerable = spread(known, few or ANSWERABLE), spread(unknown, few or UNANSWERABLE)
    mixed: list[Question] = []
    for n, question in enumerate(answerable):  # so that a run that is cut short holds both
        mixed.append(question)
        if n % 2:
            mixed += unanswerable[n // 2 : n // 2 + 1]
    return [*mixed, *unanswerable[len(answerable) // 2 :]]


def _result(got: Sequence[tuple[Answered, AnswerResponse]], wiki: Wiki) -> Result:
    readers = FolderReaders(wiki.world.wiki)
    report = score_answers([one for one, _ in got], "auto", may_read=readers.may_read)
    alone = score_answers([_alone(one) for one, _ in got], "generated", may_read=readers.may_read)
    withheld = [w for _, reply in got for w in reply.withheld_sentences]
    abstention, overall = report.abstention, report.overall
    return Result(
        NAME, abstention.f1, "F1 of refusing", F1, ok=abstention.f1 is not None and abstention.f1 >= F1,
        extra={
            "questions": len(got), "unanswerable": abstention.expected,
            "raw_sentences": alone.claims + report.withheld, "released": report.claims, "released_raw": alone.claims,
            "withheld": dict(Counter(w.reason for w in withheld)),
            "released_not_found_by_words": len(report.unsupported_by_words),
            "answered": overall.answered, "refused": abstention.abstained, "refused_rightly": abstention.right,
            "refusal_reasons": dict(Counter(one.refused for one, _ in got if one.refused)),
            "fallbacks": dict(Counter(one.fallback for one, _ in got if one.fallback)),
            "alone": {
                "f1": rounded(alone.abstention.f1), "answered": alone.overall.answered,
                "refused": alone.abstention.abstained, "refused_rightly": alone.abstention.right,
                "complete": rounded(alone.overall.complete),
            },
            "kinds": {
                kind: {"questions": of.questions, "answered": of.answered, "right": rounded(of.right)}
                for kind, of in report.kinds.items()
            },
            "complete": rounded(overall.complete), "right": rounded(overall.right),
            "exposures": len(report.exposures),
            "p50_s": rounded((percentile([one.ms or 0.0 for one, _ in got], 0.5) or 0.0) / 1000, 1),
            "prompt_tokens": sum(reply.usage.prompt_tokens for _, reply in got),
        },
    )  # fmt: skip


def _alone(one: Answered) -> Answered:
    """As it would be if nothing stood in for the model's words."""
    if one.fallback is None:
        return one
    return replace(one, answered=False, text="", claims=(), citations=(), words=0, refused="unsupported")


# -- labels by hand ----------------------------------------------------------------------------------------------------


def write(path: Path, got: Sequence[tuple[Answered, AnswerResponse]]) -> None:
    """A line for each sentence, released or not, with an empty ``label`` for people: supported or unsupported.
    ``extractive``: the model did not write it."""
    with path.open("w", encoding="utf-8") as file:
        for one, reply in got:
            common = {"id": one.question.id, "question": one.question.question, "label": None}
            quotes = {c.number: c.quote for c in reply.citations}
            for sentence in reply.sentences:
                said = [quotes.get(n, "") for n in sentence.citations]
                taken = reply.kind == "extractive"
                rest: dict[str, object] = {"released": True, "reason": None, "quotes": said, "extractive": taken}
                file.write(json.dumps({**common, "sentence": sentence.text, **rest}, ensure_ascii=False) + "\n")
            for hidden in reply.withheld_sentences:
                rest = {"released": False, "reason": hidden.reason, "quotes": []}
                file.write(json.dumps({**common, "sentence": hidden.text, **rest}, ensure_ascii=False) + "\n")


def labelled(path: Path) -> Result:
    """Raw and released sentences by the labels that people gave. Raises InfraError for a file without them."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        labels = [(bool(row["released"]), row["label"]) for row in rows]
        raw = [row["label"] for row in rows if not row.get("extractive")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InfraError(f"--labels: {path} cannot be read: {error}", "Name what --sentences wrote.") from error
    unlabelled = sum(label not in ("supported", "unsupported") for _, label in labels)
    if unlabelled or not labels:
        raise InfraError(
            f"--labels: {unlabelled} of {len(labels)} sentences have no label.", "Write supported or unsupported."
        )
    false = sum(released and label == "unsupported" for released, label in labels)
    return Result(
        f"{NAME}_labels", float(false), "unsupported sentences released, by hand labels", 0.0, ok=false == 0,
        extra={
            "raw_sentences": len(raw), "raw_unsupported": raw.count("unsupported"),
            "released": sum(released for released, _ in labels), "released_unsupported": false,
            "withheld_supported": sum(not released and label == "supported" for released, label in labels),
        },
    )  # fmt: skip


# -- server ------------------------------------------------------------------------------------------------------------


@contextmanager
def _served(model: Model) -> Iterator[str]:
    """Address of an OpenAI-compatible server. Raises InfraError."""
    if model.server is not None:
        yield model.server.rstrip("/")
        return
    if model.path is None or not model.path.is_file():
        raise InfraError("There is no model to ask.", "Name a server by --server-url, or a GGUF file by --model-path.")
    if importlib.util.find_spec("llama_cpp") is None:
        raise InfraError("llama_cpp.server is not installed.", "pip install 'headwater[llm]', or name --server-url.")
    port = ports.choose({"llm": 1}, {})["llm"]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model.path), "--model_alias", ALIAS]
    command += ["--host", ports.LOOPBACK, "--port", str(port), "--n_ctx", "2048", "--n_threads", str(model.threads)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        url = f"http://{ports.LOOPBACK}:{port}/v1"
        _await(url, server)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        if server.poll() is not None:
            raise InfraError("llama_cpp.server ended before it served.", "Is the file a GGUF model it can read?")
        try:
            if httpx.get(f"{url}/models", timeout=2, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() > end:
            raise InfraError(f"llama_cpp.server did not serve within {START_S:.0f} s.", "Try a smaller model.")
        time.sleep(0.5)
