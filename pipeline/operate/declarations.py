"""Declaration files of generations: read, and written as templates with comments."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.generations import Declaration, declared
from schemas.generation import ChunkingSpec, EncoderSpec, IndexSpec, TierSpec

ENDPOINT = "endpoint"
_ENDPOINT_SPEC = EncoderSpec(
    model="text-embedding-3-small", revision="2024-01", weights_sha256="", dimension=1536, max_tokens=8191,
    provider="openai", endpoint="corp",
)  # fmt: skip

_LOCAL = ("weights_file", "tokenizer_sha256", "pooling")  # what an endpoint decides for itself
_ABOUT: dict[str, str] = {
    "model": "Name at the model hub, or the name that the endpoint expects.",
    "revision": "Pinned: a model that changes is another generation.",
    "weights_file": "The file that weights_sha256 pins.",
    "weights_sha256": "Weights with another hash are refused; empty for an endpoint.",
    "dimension": "Values of a vector; checked when the generation is created.",
    "max_tokens": "Longest text that the encoder reads.",
    "normalize": "Vectors of unit length.",
    "pooling": "How token states become one vector: mean or cls.",
    "query_instruction": "Put before each query.",
    "document_instruction": "Put before each chunk.",
    "provider": "local (in this process), openai or tei (behind an endpoint).",
    "endpoint": "Name of the endpoint in the settings ([endpoints.NAME]); empty for local.",
    "strategy": "hierarchical, fixed, recursive, semantic or document_aware: see docs/chunking.md.",
    "by_type": "Other strategies for media types or beginnings of them.",
    "semantic_threshold": "Cosine below which neighbouring sentences part; of strategy semantic.",
    "semantic_percentile": "Instead: that share of a document's own cosines, in percent.",
    "child_tokens": "Aim of a chunk, in the encoder's own tokens.",
    "child_min_tokens": "Smaller neighbours are joined.",
    "child_max_tokens": "At most max_tokens of the encoder.",
    "parent_tokens": "A section: what a reader gets.",
    "overlap": "Share of a chunk that its successor repeats.",
    "max_chunks": "A document of more is refused.",
    "max_connections": "Links of a node in the HNSW graph (M).",
    "ef_construction": "Care while the graph is built.",
    "ef": "Care while it is searched.",
    "quantizer": "none, or rq8: one byte a value in memory.",
    "flat_search_cutoff": "Filters that leave fewer chunks are searched without the graph.",
}

_EXAMPLES = {"by_type": '{ "application/pdf" = "recursive" }', "semantic_percentile": "20"}


def names() -> tuple[str, ...]:
    """Templates that there are: every known encoder, and an endpoint."""
    from pipeline.embed.catalogue import known_encoders

    return (*known_encoders(), ENDPOINT)


def template(name: str) -> str:
    """A declaration file with comments. Raises ConfigError naming the templates."""
    from pipeline.embed.catalogue import known_encoders

    known = known_encoders()
    if name == ENDPOINT:
        wanted = Declaration(encoder=_ENDPOINT_SPEC)
        head = [
            "An embedding endpoint, OpenAI-compatible or TEI-style. Settings name it:",
            "",
            "    [endpoints.corp]",
            '    url = "https://host/v1"',
            "    price_per_million_tokens = 0.02",
            "",
        ]
    elif name in known:
        one = known[name]
        wanted = Declaration(encoder=one.spec, chunking=one.chunking)
        head = [f"{one.name}: {one.summary}.", f"{one.megabytes} MB of weights, {one.licence}."]
    else:
        raise ConfigError("template", f"there is no template {name}", f"Known: {', '.join(names())}.")
    lines = [f"# {line}".rstrip() for line in head]
    lines += ["# headwater generation create NAME --file THIS_FILE", ""]
    sections: list[tuple[str, EncoderSpec | ChunkingSpec | TierSpec]] = [
        ("encoder", wanted.encoder), ("chunking", wanted.chunking),
        ("index.hot", wanted.index.hot), ("index.cold", wanted.index.cold),
    ]  # fmt: skip
    for title, model in sections:
        lines.append(f"[{title}]")
        for field, value in model.model_dump().items():
            if (name == ENDPOINT and field in _LOCAL) or (title == "chunking" and field == "revision"):
                continue
            about = _ABOUT.get(field) or type(model).model_fields[field].description
            if value is None or value == {}:  # no value stands for it in TOML
                lines.append(f"# {field} = {_EXAMPLES[field]}  # {about}")
                continue
            lines.append(f"{field} = {_toml(value)}" + (f"  # {about}" if about else ""))
        lines.append("")
    return "\n".join(lines)


def load(path: Path) -> Declaration:
    """Read a declaration file. Raises ConfigError naming the file or the field."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            str(path), "there is no such file", "`headwater generation template minilm > generation.toml` makes one."
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read as TOML: {error}", "Correct the file.") from error
    return declared(values)


def differences(wanted: Declaration, index: IndexSpec, encoder: EncoderSpec, chunking: ChunkingSpec) -> list[str]:
    """Fields in which a declaration differs from what serves, as ``field: now -> then``."""
    pairs = (
        ("encoder", encoder, wanted.encoder),
        ("chunking", chunking, wanted.chunking),
        ("index", index, wanted.index),
    )
    found = []
    for title, now, then in pairs:
        before, after = now.model_dump(), then.model_dump()
        found += [f"{title}.{k}: {before[k]} -> {after[k]}" for k in after if before[k] != after[k]]
    return found


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
