"""Which language a document is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from schemas.documents import Block

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]

_SAMPLE = 6000  # characters looked at
_PIECE = 400  # of a block at a time, so that one long block does not speak for all
_LEAST = 40  # letters without which a language is not guessed
_LEAST_OWN = 8  # the same where the script belongs to one language
_CONFIDENCE = 0.8
_PROSE = frozenset({"paragraph", "heading", "list", "quote", "footnote"})
_NOISE = re.compile(r"\(?[a-z][a-z0-9+.\-]*://\S+|\S+@\S+|\S*[\d_/\\<>{}=]\S*|[|#*`]+", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
# Scripts that one language of today's documents is written in.
_OWN_SCRIPT = tuple(
    (re.compile(f"[{letters}]"), language)
    for letters, language in (
        ("\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff", "ja"),
        ("\uac00-\ud7a3\u1100-\u11ff", "ko"),
        ("\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0003ffff", "zh"),
        ("\u0e01-\u0e5b", "th"),
        ("\u0e81-\u0edf", "lo"),
        ("\u1780-\u17ff", "km"),
        ("\u1000-\u109f", "my"),
        ("\u0590-\u05ff", "he"),
        ("\u0370-\u03ff\u1f00-\u1fff", "el"),
        ("\u0531-\u058f", "hy"),
        ("\u10a0-\u10ff", "ka"),
        ("\u0b80-\u0bff", "ta"),
        ("\u0c00-\u0c7f", "te"),
        ("\u0c80-\u0cff", "kn"),
        ("\u0d00-\u0d7f", "ml"),
        ("\u0d80-\u0dff", "si"),
        ("\u0a80-\u0aff", "gu"),
        ("\u0a00-\u0a7f", "pa"),
        ("\u0b00-\u0b7f", "or"),
    )
)
# What the model tells apart; its dialects and languages without documents of this kind only take votes from others.
_LANGUAGES = (
    "af am ar as az ba be bg bn br bs ca cs cy da de en eo es et eu fa fi fo fr fy ga gd gl gu ha he hi hr ht hu hy id "
    "ig is it ja jv ka kk km kn ko ku ky la lb lo lt lv mg mk ml mn mr ms mt my ne nl nn no oc om or pa pl ps pt qu ro "
    "ru rw sa se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz vi xh yo zh zu zxx"
)
_ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
# Other names that documents give their language: ISO 639-2 codes, old codes, names in English and in the language.
_NAMES = {
    name: code
    for line in (
        "en eng english", "de deu ger german deutsch", "fr fra fre french français francais", "es spa spanish español",
        "it ita italian italiano", "pt por portuguese português", "nl nld dut dutch nederlands",
        "da dan danish dansk", "sv swe swedish svenska", "no nor norwegian norsk", "fi fin finnish suomi",
        "pl pol polish polski", "cs ces cze czech čeština", "sk slk slo slovak", "hu hun hungarian magyar",
        "ro ron rum romanian română", "bg bul bulgarian", "hr hrv croatian hrvatski", "sr srp serbian",
        "sl slv slovenian slovene", "el ell gre greek ελληνικά", "tr tur turkish türkçe", "ru rus russian русский",
        "uk ukr ukrainian українська", "he heb hebrew iw עברית", "ar ara arabic العربية", "fa fas per persian farsi",
        "hi hin hindi", "th tha thai", "vi vie vietnamese", "id ind indonesian in", "ms msa may malay",
        "ja jpn japanese jp 日本語", "ko kor korean kr 한국어", "zh zho chi chinese cn 中文", "et est estonian",
        "lv lav latvian", "lt lit lithuanian", "ca cat catalan", "eu eus baq basque", "is isl ice icelandic",
        "ga gle irish", "cy cym wel welsh",
    )
    for code, *names in [line.split()]
    for name in names
}  # fmt: skip
_TAG = re.compile(
    r"(?P<language>[A-Za-z]{2,3})(?:-[A-Za-z]{3}){0,3}(?:-(?P<script>[A-Za-z]{4}))?(?:-(?P<region>[A-Za-z]{2}|\d{3}))?"
    r"(?P<rest>(?:-(?:[A-Za-z0-9]{5,8}|\d[A-Za-z0-9]{3}))*(?:-[A-Za-z0-9](?:-[A-Za-z0-9]{2,8})+)*)$"
)
_NO_LANGUAGE = frozenset({"und", "mul", "mis", "zxx", "xx"})


def tag(declared: str | None) -> str | None:
    """A declared language as a BCP 47 tag (``en_US.UTF-8`` is ``en-US``, ``german`` is ``de``).

    None where nothing is declared or what is declared names no language. Extensions and variants are left out.
    """
    name = (declared or "").strip().split(",")[0].split("(")[0].split(".")[0].split("@")[0].strip().replace("_", "-")
    name = _NAMES.get(name.lower(), name)
    match = _TAG.match(name)
    if match is None:
        return None
    language = match["language"].lower()
    language = _NAMES.get(language, language)
    if language in _NO_LANGUAGE or (len(language) == 2 and language not in _ISO_639_1.split()):
        return None
    script, region = match["script"], match["region"]
    return "-".join([language, *([script.title()] if script else []), *([region.upper()] if region else [])])


def detected(blocks: Sequence[Block]) -> str | None:
    """BCP 47 code of the language that most of a document's prose is in, or None where that is in doubt.

    A few thousand characters from the beginnings of its blocks decide, so an edit of a sentence changes nothing.
    """
    sample = _NOISE.sub(" ", " ".join(_pieces(blocks)))[:_SAMPLE]
    letters = len(_LETTER.findall(sample))
    counts = {language: len(pattern.findall(sample)) for pattern, language in _OWN_SCRIPT}
    if counts["ja"] * 20 > counts["zh"]:  # Japanese mixes both scripts
        counts["ja"], counts["zh"] = counts["ja"] + counts["zh"], 0
    language = max(counts, key=lambda one: counts[one])
    # A letter of Han or Hangul says as much as several of an alphabet.
    weight = 3 if language in ("ja", "ko", "zh") else 1
    own = counts[language] * weight
    if own >= _LEAST_OWN and own * 2 > letters:
        return language
    if letters < _LEAST:
        return None
    # classify() takes shouting for another language than speech.
    found, confidence = _identifier().classify(sample.lower() if sample.isupper() else sample)
    return str(found) if confidence >= _CONFIDENCE and found != "zxx" else None


def _pieces(blocks: Sequence[Block]) -> Iterator[str]:
    """Beginnings of the prose blocks, then what follows of them, until there is enough."""
    texts = [block.text[:_SAMPLE] for block in blocks if block.type in _PROSE][: _SAMPLE // 8]
    left = 2 * _SAMPLE
    for turn in zip_longest(*([text[at : at + _PIECE] for at in range(0, len(text), _PIECE)] for text in texts)):
        for piece in turn:
            if piece:
                yield piece
                left -= len(piece)
            if left <= 0:
                return


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    made = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    made.set_languages(_LANGUAGES.split())
    return made
