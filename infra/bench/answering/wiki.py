"""The sample wiki in a world of its own, and its golden questions as benchmarks of answers ask them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra import corpus
from infra.answer_run import Corpus
from infra.bench.expansion import await_pages
from infra.bench.session import Session
from infra.bench.world import FOLDER_TENANT, World
from infra.golden_run import checkout, questions_of
from pipeline.answer_report import Facts, load_facts
from pipeline.golden import Question

PROCESSES = ("control", "access", "index", "query", "owner")


@dataclass(frozen=True)
class Wiki:
    """A world that serves the wiki. ``questions`` are all of the set, in the world's tenant."""

    world: World
    questions: tuple[Question, ...]
    facts: Mapping[str, Facts]
    corpus: Corpus

    @property
    def answerable(self) -> list[Question]:
        """Those that their person can get an answer to."""
        return [q for q in self.questions if q.answerable]


def opened(session: Session, name: str) -> Wiki:
    """Start it and wait until every page can be found. Raises InfraError, GoldenError."""
    paths = checkout()
    session.close_world()
    world = World(session.endpoints, session.folder / "worlds" / name, PROCESSES)
    shutil.copytree(paths.wiki, world.wiki, dirs_exist_ok=True)
    made = session.world(name, lambda: world)
    questions = tuple(q.model_copy(update={"tenant": FOLDER_TENANT}) for q in questions_of(paths)[0])
    await_pages(session, made, sum(1 for _ in corpus.pages(made.wiki)))
    return Wiki(made, questions, load_facts(paths.facts, questions), Corpus.of(paths.wiki))


def spread(questions: Sequence[Question], most: int) -> list[Question]:
    """At most so many, taken from each kind in turn, so that none is missing."""
    kinds: dict[str, list[Question]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    found: list[Question] = []
    while len(found) < most and any(kinds.values()):
        for waiting in kinds.values():
            if waiting and len(found) < most:
                found.append(waiting.pop(0))
    return found
