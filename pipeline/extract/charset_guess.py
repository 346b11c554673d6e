"""Which charset undeclared bytes are in: what the bytes prove by their structure, then what a detector says."""

from __future__ import annotations

import re

# What a detector may come out with: encodings met in wikis and mail. A wider list only adds ways to be wrong.
_GUESSES = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "cp932", "euc_jp",
    "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be",
]  # fmt: skip
# In short texts these are told from Western European by chance; where both readings are plausible the commoner wins.
_NEAR_WESTERN = frozenset({"cp1250", "cp1254"})
_WESTERN_MARKS = frozenset("\u00a0“”„‘’‚–—…€£§°«»¿¡•©®™·²½¼×")
_SAMPLE = 1 << 16
_LEAST = 8  # letters beyond ASCII without which no script's rules are trusted
_TELLING_LINE = re.compile(rb"[^\n]{0,500}[\x80-\xff][^\n]{0,500}")
_ISO_2022 = re.compile(rb"\x1b(?:\$[@AB()]|\([JI])")
_ASCII_WORD = re.compile(rb"[A-Za-z]{4}")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u30fc]")
_CYRILLIC = ("cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866")
_CYRILLIC_MIX = re.compile("[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]")
_HEBREW = re.compile("[\u05d0-\u05ea]")
_HEBREW_WRONG = re.compile("[ךםןףץ][\u05d0-\u05ea]|[A-Za-z][\u05d0-\u05ea]")  # final forms stand last in a word
_THAI = re.compile("[\u0e01-\u0e5b]")
_THAI_WRONG = re.compile(
    "(?:^|[^\u0e01-\u0e5b]|[\u0e40-\u0e44])[\u0e30-\u0e3a\u0e45\u0e47-\u0e4e]|[\u0e40-\u0e44](?![\u0e01-\u0e2e])"
)
_SYMBOL_IN_WORD = re.compile(r"\w[¦§¨©«¬®°±´¶·¸»]\w|\w[±¶ľ»](?=[\s,.]|$)")
_ICELANDIC = frozenset("áíóúéæÁÍÓÚÉÆ")
# Scripts whose letters fill a text in UTF-16; ranges of code points.
_SCRIPTS = ((0x41, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
            (0xE00, 0xE7F), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFF5F))  # fmt: skip


def strict(body: bytes, name: str) -> str | None:
    """The body decoded, or None where it is not valid."""
    try:
        return body.decode(name, "strict")
    except (UnicodeError, LookupError):  # LookupError: a codec that is not for text (base64, zlib)
        return None


def wide(body: bytes) -> tuple[str, str] | None:
    """Text and name of the charset where the bytes are no ASCII superset: ISO-2022, UTF-16 or UTF-32 without mark."""
    if _ISO_2022.search(body):
        for name in ("iso2022_kr",) if b"\x1b$)C" in body else ("iso2022_jp_2",):
            text = strict(body, name)
            if text is not None:
                return text, name
    for names, shown in ((("utf-32-le", "utf-32-be"), 4), (("utf-16-le", "utf-16-be"), 2)):
        if len(body) % shown == 0 and len(body) >= 8 and _not_narrow(body):
            readings = [(_coherence(text), text, name) for name in names if (text := strict(body, name)) is not None]
            best = max(readings, default=(0.0, "", ""), key=lambda reading: reading[0])
            if best[0] >= 0.9:
                return best[1], best[2]
    return None


def _not_narrow(body: bytes) -> bool:
    """Whether bytes that no narrow text has are too many for one: NULs and control characters."""
    sample = body[:_SAMPLE]
    controls = len(sample) - len(sample.translate(None, b"\x00\x01\x02\x03\x04\x05\x06\x0e"))
    return controls * 20 > len(sample)


def _coherence(text: str) -> float:
    """Share of a sample that is ASCII blanks and signs, or letters of its two commonest scripts."""
    sample = text[:4096]
    counts = [0] * len(_SCRIPTS)
    plain = 0
    for char in sample:
        code = ord(char)
        if code in (9, 10, 13) or 32 <= code < 0x41 or 0x2010 <= code <= 0x2030:
            plain += 1
            continue
        for index, (low, high) in enumerate(_SCRIPTS):
            if low <= code <= high:
                counts[index] += char.isprintable()
                break
    return (plain + sum(sorted(counts)[-2:])) / len(sample) if sample else 0.0


def guess(body: bytes) -> tuple[str, str] | None:
    """Text and name of the likeliest charset of bytes that are not UTF-8; None where none fits.

    Short texts may be read wrongly: whoever takes the result says so.
    """
    sample = b"\n".join(_TELLING_LINE.findall(body[: 64 * _SAMPLE]))[:_SAMPLE]
    for name in (*_by_rule(sample), *_by_detector(sample)):
        text = strict(body, name)
        if text is not None:
            return text, name
    return None


def _by_rule(sample: bytes) -> list[str]:
    """Charsets whose reading of the sample obeys a script's own rules, which no other bytes do by chance."""
    found: list[str] = []
    narrow = _ASCII_WORD.search(sample) is not None
    for name in ("euc_jp", "cp932") if narrow else ("euc_jp", "cp932", "utf_16_le", "utf_16_be"):
        text = _loose(sample, name)
        if text is not None and len(_KANA.findall(text)) * 5 > _beyond_ascii(text):
            found.append(name)
    for name, letters, wrong in (("cp1255", _HEBREW, _HEBREW_WRONG), ("cp874", _THAI, _THAI_WRONG)):
        text = strict(sample, name)
        if text is not None and not wrong.search(text):
            count = len(letters.findall(text))
            if count >= _LEAST and count * 10 >= _beyond_ascii(text) * 9:
                found.append(name)
    best = max(((_russian(text), name) for name in _CYRILLIC if (text := strict(sample, name))), default=(0.0, ""))
    return [*found, best[1]] if best[0] >= 0.4 else found


def _russian(text: str) -> float:
    """Share of the commonest small letters in a text of Cyrillic letters; 0 for a text that is none."""
    letters = [char for char in text if "\u0400" <= char <= "\u04ff"]
    if len(letters) < _LEAST or len(letters) * 10 < _beyond_ascii(text) * 9 or _CYRILLIC_MIX.search(text):
        return 0.0
    return sum(char in "оеаинтсрі" for char in letters) / len(letters)


def _beyond_ascii(text: str) -> int:
    return sum(not char.isascii() for char in text)


def _loose(sample: bytes, name: str) -> str | None:
    """The sample decoded; its end may cut a character."""
    for cut in range(3):
        text = strict(sample[: len(sample) - cut], name) if cut < len(sample) else None
        if text is not None:
            return text
    return None


def _by_detector(sample: bytes) -> list[str]:
    """What charset-normalizer finds, best first, then Western European."""
    from charset_normalizer import from_bytes

    found = from_bytes(sample, cp_isolation=_GUESSES, preemptive_behaviour=False)
    best = found.best()
    western = strict(sample, "cp1252")
    if best is None:
        return ["cp1252", "latin-1"] if western is None or _is_western(western) else ["cp1252"]
    name = best.encoding
    rival = max((match.coherence for match in found if match.encoding == "cp1252"), default=0.0)
    if name in _NEAR_WESTERN and western is not None and rival >= best.coherence and _is_western(western):
        name = "cp1252"
    if name == "cp1252" and western is not None and _is_turkish(western):
        name = "cp1254"
    if name in _NEAR_WESTERN and not re.search(rb"[\x80-\x9f]", sample):
        text = strict(sample, "cp1250")
        if name == "cp1250" and text is not None and _SYMBOL_IN_WORD.search(text):
            name = "iso8859_2"
    return [name, *(match.encoding for match in found if match.encoding != name), "cp1252"]


def _is_western(text: str) -> bool:
    """Whether all that is not ASCII is letters and the punctuation of Western text."""
    return all(char.isalpha() or char in _WESTERN_MARKS for char in set(text) if not char.isascii())


def _is_turkish(western: str) -> bool:
    """Icelandic letters in a text without any other letter of Icelandic are Turkish ones."""
    chars = set(western)
    return not chars.isdisjoint("ðþýÐÞÝ") and chars.isdisjoint(_ICELANDIC) and not chars.isdisjoint("öüçÖÜÇþÞ")
