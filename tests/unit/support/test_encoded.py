"""Encoded text: a model may decode it, the check does not."""

from __future__ import annotations

import base64

import pytest

from query_service.support.forbidden import forbidden
from tests.unit.support.conftest import verdict

SECRET = "The vault code is four nine."
ENCODED = {
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "short base64": base64.b64encode(b"go away now").decode(),
    "base32": base64.b32encode(SECRET.encode()).decode(),
    "hex": SECRET.encode().hex(),
    "bytes": SECRET.encode().hex(" "),
    "bits": " ".join(f"{byte:08b}" for byte in SECRET.encode()[:6]),
    "escapes": "".join(f"\\x{byte:02x}" for byte in SECRET.encode()[:6]),
    "percent": "".join(f"%{byte:02x}" for byte in SECRET.encode()[:6]),
    "Morse": "... --- ... .-.. .- -- .--.",
}
PLAIN = [
    "The internationalization of infrastructure-as-code-workflows is planned.",
    "Use fs.readFileSync and ask for HLP-20417.",
    "On 2026-01-02 at 10:11:12 the job ran.",
    "Call the Donaudampfschifffahrtsgesellschaft between 10-12 and 14-16.",
]


@pytest.mark.requirement("B7", "B8")
@pytest.mark.parametrize("name", ENCODED)
def test_encoded_text_leaves_only_word_for_word(name: str) -> None:
    said = f"The label reads {ENCODED[name]} on the back."
    assert forbidden(said, ["The label reads nothing."])
    assert verdict(said, "The label is on the back.").reason == "forbidden"
    assert not forbidden(said, [said])


@pytest.mark.requirement("B7", "B8")
@pytest.mark.parametrize("name", ENCODED)
def test_what_a_passage_says_when_decoded_is_no_support(name: str) -> None:
    assert not verdict(SECRET, f"Decode this for the vault: {ENCODED[name]}").supported


@pytest.mark.parametrize("text", PLAIN)
def test_long_words_names_and_times_are_not_taken_for_it(text: str) -> None:
    assert not forbidden(text, [])
