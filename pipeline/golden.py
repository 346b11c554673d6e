"""The golden set: questions, the labels that say what is relevant, and who may read what in a folder of pages.

Labels name a document with a heading or a span of text, never a chunk id, so they outlive every chunking.
`samples/golden/RUBRIC.md` says how they were given.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

Kind = Literal["plain", "unanswerable", "identifier", "permission", "contradictory", "multi_hop", "as_of", "language"]
KINDS: tuple[Kind, ...] = (
    "plain",
    "identifier",
    "permission",
    "contradictory",
    "multi_hop",
    "as_of",
    "language",
    "unanswerable",
)
Text = Annotated[str, Field(min_length=1)]

_MARKS = str.maketrans("", "", "*_`#|")


class GoldenError(ValueError):
    """The golden set, the wiki's access files or a baseline cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One returned passage. `document` is the path relative to the root of the source."""

    document: str
    text: str
    heading_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What a search gave for one question, best first.

    `abstained` is true where the reply says that nothing sufficiently relevant was found; an empty list says so too.
    """

    hits: tuple[Hit, ...] = ()
    abstained: bool = False

    @property
    def declined(self) -> bool:
        return self.abstained or not self.hits


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Label(_Frozen):
    """One relevant passage: a heading or a verbatim span of a document, with a grade of 1 to 3."""

    document: Text
    heading: Text | None = None
    span: Text | None = None
    grade: int = Field(ge=1, le=3)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.heading is None) == (self.span is None):
            raise ValueError(f"a label in {self.document} needs either 'heading' or 'span'")
        return self

    def matches(self, hit: Hit) -> bool:
        """Whether the hit shows this passage. A chunk that merges short sections shows their heading as a line."""
        if hit.document != self.document:
            return False
        if self.span is not None:
            return level(self.span) in level(hit.text)
        wanted = level(self.heading or "")
        return any(level(part) == wanted for part in (*hit.heading_path, *hit.text.splitlines()))


class Question(_Frozen):
    """One line of `questions.jsonl`; the fields are explained in the rubric."""

    id: Text
    question: Text
    user: Text
    tenant: Text
    kind: Kind
    as_of: date | None = None
    relevant: tuple[Label, ...] = ()
    forbidden: tuple[Text, ...] = ()
    twins: tuple[Text, ...] = ()
    excluded: tuple[Text, ...] = ()
    language: str | None = None
    answer: str | None = None
    fact: str | None = None
    absent: str | None = None

    @property
    def answerable(self) -> bool:
        """Whether this person can get an answer at all; False where the right reply is to abstain."""
        return bool(self.relevant)


def level(text: str) -> str:
    """Text with Unicode form, case, white space and Markdown marks levelled, for comparing passages."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_MARKS).casefold().split())


def load_questions(path: Path) -> tuple[Question, ...]:
    """Read a `questions.jsonl`.

    Raises:
        GoldenError: the file is missing or empty, a line is not a question, or an id is used twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise GoldenError(f"golden set {path} cannot be read ({error.strerror}): name an existing file") from error
    found: dict[str, Question] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = Question.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            raise GoldenError(f"{path.name} line {number}, {where}: {first['msg']}") from error
        if question.id in found:
            raise GoldenError(f"{path.name} line {number}: id {question.id} is used twice, give it another")
        found[question.id] = question
    if not found:
        raise GoldenError(f"golden set {path} holds no question")
    return tuple(found.values())


_FolderRule = TypeAdapter(dict[Literal["allow", "deny"], list[str]])


@dataclass(slots=True)
class FolderReaders:
    """Who may read which page of a folder source, straight from its files.

    Deliberately independent of the source connector and of the store: it is what their answers are checked against.
    """

    root: Path
    _principals: dict[str, frozenset[str]] = field(default_factory=dict)
    _rules: dict[Path, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    _groups: dict[str, Any] | None = None

    def may_read(self, user: str, document: str) -> bool:
        """Whether every folder from the root down to the page lets the person in and none denies them."""
        mine = self.principals(user)
        folder = self.root
        for part in ("", *Path(document).parent.parts):
            folder = folder / part
            rule = self._rule(folder)
            if not mine & rule["allow"] or mine & rule["deny"]:
                return False
        return True

    def principals(self, user: str) -> frozenset[str]:
        """All names that stand for the person; none for somebody who is not listed in `groups.yaml`."""
        if user not in self._principals:
            self._principals[user] = self._closure(user)
        return self._principals[user]

    def _closure(self, user: str) -> frozenset[str]:
        if self._groups is None:
            self._groups = self._load(self.root / "groups.yaml")
        if user not in self._groups.get("users", ()):
            return frozenset()
        groups: dict[str, list[str]] = self._groups.get("groups", {})
        members = {
            f"group:{name}": {one if one.startswith(("user:", "group:")) else f"user:{one}" for one in listed}
            for name, listed in groups.items()
        }
        own = {f"user:{user}", "everyone"}
        while grown := {name for name, inside in members.items() if name not in own and inside & own}:
            own |= grown
        return frozenset(own)

    def _rule(self, folder: Path) -> Mapping[str, frozenset[str]]:
        if folder not in self._rules:
            file = folder / ".access.yaml"
            try:
                rule = _FolderRule.validate_python(self._load(file) if file.is_file() else {"allow": ["everyone"]})
            except ValidationError as error:
                raise GoldenError(f"{file}: 'allow' and 'deny' must be lists of principals") from error
            self._rules[folder] = {name: frozenset(rule.get(name, ())) for name in ("allow", "deny")}
        return self._rules[folder]

    @staticmethod
    def _load(file: Path) -> dict[str, Any]:
        try:
            loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise GoldenError(f"{file} cannot be read: {error}") from error
        if not isinstance(loaded, dict):
            raise GoldenError(f"{file} must hold a mapping")
        return loaded
