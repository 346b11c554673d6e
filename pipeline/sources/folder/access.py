"""Who may read a folder tree: ``.access.yaml`` per folder, ``groups.yaml`` at the root, and what follows from them.

Pure. A folder's readers are those whom it *and all folders above it* allow and none of them denies. Each folder is an
audience, so a change of its file is one membership record for each principal concerned and none for its documents.
What cannot be read lets nobody in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from pipeline.ports import SourceMembership
from pipeline.sources.folder import names
from schemas.access import EVERYONE, AccessRule, Clause, Grant
from schemas.base import name_fault

ACCESS_FILE = ".access.yaml"
GROUPS_FILE = "groups.yaml"
MAX_BYTES = 1_000_000
"""Largest access or groups file."""


class AccessFileError(ValueError):
    """A file that cannot be used. Names file and field, and says what to write instead."""

    def __init__(self, file: str, field_: str, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {field_}: {problem}. {remedy}")


@dataclass(frozen=True)
class FolderAccess:
    """One folder's own lists: ``everyone``, ``user:name`` or ``group:name``. ``closed`` says why nobody may read."""

    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    closed: str | None = None


OPEN = FolderAccess(allow=frozenset({EVERYONE}))
"""A folder without a file of its own: open as far as the folders above it are."""


@dataclass(frozen=True)
class Groups:
    """Listed users, and the direct members of each group (``user:name`` or ``group:name``).

    ``incomplete`` groups name another group that is not listed: more people may belong to them than can be told.
    """

    users: frozenset[str] = frozenset()
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    incomplete: frozenset[str] = frozenset()


class _StrictLoader(yaml.SafeLoader):
    """A key written twice is an error: which of the two lists was meant is not for us to guess."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "a key is written twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _load(data: bytes, file: str) -> dict[str, object]:
    if len(data) > MAX_BYTES:
        raise AccessFileError(file, "file", f"larger than {MAX_BYTES} bytes", "Shorten it.")
    try:
        loaded = yaml.load(data.decode("utf-8-sig"), Loader=_StrictLoader)
    except UnicodeDecodeError as error:
        raise AccessFileError(file, "file", "is not UTF-8", "Save it as UTF-8.") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "file"
        raise AccessFileError(file, where, "is not valid YAML or names a key twice", "Correct it.") from error
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise AccessFileError(file, "file", "is not a mapping", "Write one key and its value on each line.")
    return loaded


def _known_only(loaded: Mapping[str, object], known: set[str], file: str) -> None:
    for key in loaded:
        if key not in known:
            raise AccessFileError(file, key, "is unknown", f"Known are {' and '.join(sorted(known))}.")


def _name(value: object, file: str, where: str) -> str:
    if not isinstance(value, str):
        shown = "empty" if value is None else f"a {type(value).__name__}"
        raise AccessFileError(file, where, f"is {shown}, not a name", "Write a name, quoted if it looks like a number.")
    fault = name_fault(value) if value else "is not empty"
    if fault is not None:
        raise AccessFileError(file, where, f"a name {fault}", "Write the bare name as it is seen.")
    return value


def _entries(loaded: Mapping[str, object], key: str, file: str) -> frozenset[str]:
    value = loaded.get(key, [])
    if not isinstance(value, list):
        raise AccessFileError(file, key, "is not a list", f"Write {key}: [user:ann, group:eng, everyone].")
    out = set()
    for index, item in enumerate(value):
        where = f"{key}[{index}]"
        name = _name(item, file, where)
        kind, _, rest = name.partition(":")
        if name != EVERYONE and (kind not in ("user", "group") or not rest or rest != rest.strip()):
            raise AccessFileError(
                file, where, "is not 'everyone', 'user:…' or 'group:…'", "Say which: user:ann, group:eng or everyone."
            )
        out.add(name)
    return frozenset(out)


def parse_access(data: bytes, file: str) -> FolderAccess:
    """Read an ``.access.yaml``. Raises AccessFileError."""
    loaded = _load(data, file)
    _known_only(loaded, {"allow", "deny"}, file)
    if "allow" not in loaded:
        raise AccessFileError(file, "allow", "is missing", "Write allow: [everyone], or whom you mean.")
    return FolderAccess(_entries(loaded, "allow", file), _entries(loaded, "deny", file))


def parse_groups(data: bytes, file: str = GROUPS_FILE) -> tuple[Groups, list[str]]:
    """Read ``groups.yaml``; the second value reports members that are not listed. Raises AccessFileError."""
    loaded = _load(data, file)
    _known_only(loaded, {"users", "groups"}, file)
    users = _users(loaded.get("users"), file)
    given = loaded.get("groups") or {}
    if not isinstance(given, dict):
        raise AccessFileError(file, "groups", "is not a mapping", "Write groups: {eng: [ann, bob]}.")
    groups: dict[str, frozenset[str]] = {}
    incomplete: set[str] = set()
    problems: list[str] = []
    for key, members in given.items():
        where = f"groups.{key}"
        name = _name(key, file, where)
        if not isinstance(members, list):
            raise AccessFileError(file, where, "is not a list", f"Write {name}: [ann, group:other].")
        listed = set(map(str, given))
        groups[name] = _members(members, name, users, listed, file, problems)
        if any(m.startswith("group:") and m.removeprefix("group:") not in listed for m in members):
            incomplete.add(name)
    return Groups(users, groups, frozenset(incomplete)), problems


def _users(value: object, file: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list | dict):
        raise AccessFileError(file, "users", "is neither a list nor a mapping", "Write users: [user:ann, user:bob].")
    users = set()
    for index, item in enumerate(value):
        name = _name(item, file, f"users[{index}]")
        users.add(_name(name.removeprefix("user:"), file, f"users[{index}]"))
    return frozenset(users)


def _members(
    members: list[object], group: str, users: frozenset[str], groups: set[str], file: str, problems: list[str]
) -> frozenset[str]:
    out = set()
    for index, item in enumerate(members):
        where = f"groups.{group}[{index}]"
        name = _name(item, file, where)
        if name.startswith("group:"):
            inner = _name(name.removeprefix("group:"), file, where)
            if inner not in groups:
                problems.append(f"{file}: {where}: no group {inner!r} is listed; it lets nobody in")
                continue
            out.add(f"group:{inner}")
            continue
        user = _name(name.removeprefix("user:"), file, where)
        if user == EVERYONE:
            raise AccessFileError(file, where, "everyone is no member of a group", "Name everyone in .access.yaml.")
        if user not in users:
            problems.append(f"{file}: {where}: {user!r} is not among the users and stays nobody; list them under users")
            continue
        out.add(f"user:{user}")
    return frozenset(out)


def _qualified(source: str, name: str) -> str:
    return names.group(source, name.removeprefix("group:")) if name.startswith("group:") else name


def closed_denials(groups: Groups, folders: Mapping[str, FolderAccess]) -> dict[str, str]:
    """Folders that deny a group of which cannot be told who is in it, with the reason: there nobody may read.

    A denial that misses the person meant would open the folder, and a group's name changes more easily than its people.
    """
    unsure = set(groups.incomplete)
    while more := {g for g, members in groups.groups.items() if g not in unsure and _names_any(members, unsure)}:
        unsure |= more
    found = {}
    for folder, access in folders.items():
        for name in sorted(access.deny):
            group = name.removeprefix("group:")
            if name.startswith("group:") and (group not in groups.groups or group in unsure):
                why = "names a group that is not" if group in groups.groups else "is not"
                file = f"{names.readable(folder) or '.'}/{ACCESS_FILE}"
                found[folder] = f"nobody may read: {file}: deny: {name} {why} in {GROUPS_FILE}. List it, or correct it."
                break
    return found


def _names_any(members: frozenset[str], groups: set[str]) -> bool:
    return any(m.startswith("group:") and m.removeprefix("group:") in groups for m in members)


def memberships(
    tenant: str, source: str, groups: Groups, folders: Mapping[str, FolderAccess]
) -> tuple[list[SourceMembership], list[str]]:
    """The direct parents of every principal of the source, whole state, and a report of names that reach nobody.

    Users and groups are in the groups that list them, and they and ``everyone`` are in the audiences of folders that
    allow them and in the deny audiences of those that deny them. Audiences themselves have a record without parents,
    so that a caller's closure meets no missing one.
    """
    parents: defaultdict[str, set[str]] = defaultdict(set)
    problems: list[str] = []
    known = {f"user:{u}" for u in groups.users} | {f"group:{g}" for g in groups.groups} | {EVERYONE}
    for name in known:
        parents[_qualified(source, name)]
    for group, members in groups.groups.items():
        for member in members:
            parents[_qualified(source, member)].add(names.group(source, group))
    closed = closed_denials(groups, folders)
    for folder, access in folders.items():
        allowed, denied = names.audience(source, folder), names.denied(source, folder)
        parents[allowed]
        parents[denied]
        allow = access.allow if folder not in closed else frozenset[str]()
        for listed, parent in ((allow, allowed), (access.deny, denied)):
            for name in sorted(listed):
                if name not in known:
                    problems.append(f"{names.readable(folder) or '.'}/{ACCESS_FILE}: {name} is not in {GROUPS_FILE}")
                    continue
                parents[_qualified(source, name)].add(parent)
    return [SourceMembership(tenant, p, tuple(sorted(above))) for p, above in sorted(parents.items())], problems


def reach(groups: Groups, folders: Mapping[str, FolderAccess]) -> dict[str, int]:
    """About how many users each folder's own list allows: the hint by which the pre-filter is chosen."""
    people = {f"group:{name}": _people(name, groups) for name in groups.groups}
    out = {}
    for folder, access in folders.items():
        if EVERYONE in access.allow:
            out[folder] = len(groups.users)
            continue
        reached: set[str] = set()
        for name in access.allow:
            reached |= people.get(name, {name} if name.removeprefix("user:") in groups.users else set())
        out[folder] = len(reached)
    return out


def _people(group: str, groups: Groups) -> set[str]:
    """Users in a group, through groups in it; cycles are walked once."""
    seen, todo, people = {group}, [group], set()
    while todo:
        for member in groups.groups.get(todo.pop(), ()):
            if member.startswith("user:"):
                people.add(member)
            elif (inner := member.removeprefix("group:")) not in seen:
                seen.add(inner)
                todo.append(inner)
    return people


def rule_of(source: str, folders: Iterable[str], sizes: Mapping[str, int] | None = None) -> AccessRule:
    """The rule of a document: in the audience of every folder on its path, in none of their deny audiences."""
    path = list(folders)
    clauses = tuple(
        Clause(
            any_of=(Grant(principal=names.audience(source, folder)),),
            size_hint=sizes.get(folder) if sizes is not None else None,
        )
        for folder in path
    )
    return AccessRule(clauses=clauses, deny=tuple(names.denied(source, folder) for folder in path))
