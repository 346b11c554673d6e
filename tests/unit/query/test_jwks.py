"""Key sets: one algorithm for each key, new keys found, old ones honoured until they leave, servers that are down."""

from __future__ import annotations

import asyncio
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import SecretStr

from pipeline.errors import ConfigError
from pipeline.settings import AuthSettings
from query_service.jwks import KeySet, usable_keys
from query_service.scope import KeysUnavailable, Scope, TokenVerifier, Unauthorized
from tests.unit.query.test_scope import claims
from tests.unit.query.world import SECRET, World

pytestmark = pytest.mark.anyio
URL = "https://id.example/keys"


@cache
def private(name: str) -> Any:
    return {
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "small": lambda: rsa.generate_private_key(65537, 1024),
        "ec": lambda: ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate,
    }[name.split("-")[0]]()


def jwk(name: str, **more: Any) -> dict[str, Any]:
    algorithm: Any = {"rsa": RSAAlgorithm, "small": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}[
        name.split("-")[0]
    ]
    made = {**algorithm.to_jwk(private(name).public_key(), as_dict=True), "kid": name, "use": "sig", **more}
    made.pop("key_ops", None) if "key_ops" not in more else None
    return {k: v for k, v in made.items() if v is not None}


def token(name: str, algorithm: str = "RS256", kid: Any = ..., **changes: Any) -> str:
    headers = {} if kid is None else {"kid": name if kid is ... else kid}
    return jwt.encode(claims(**changes), private(name), algorithm=algorithm, headers=headers)


class Server:
    """Serves a key set, counts how often, and may be down."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys: Any = list(keys)
        self.reads, self.down, self.now = 0, False, 1000.0

    async def fetch(self) -> bytes:
        self.reads += 1
        await asyncio.sleep(0)
        if self.down:
            raise OSError("down")
        return json.dumps({"keys": self.keys}).encode()

    def verifier(self, **settings: Any) -> TokenVerifier:
        auth = AuthSettings(jwks_url=URL, service_secret=SecretStr("s" * 32), **settings)
        made = TokenVerifier(auth)
        made.keyset = KeySet(auth, self.fetch, lambda: self.now)
        return made


async def refused(verifier: TokenVerifier, *tokens: str) -> None:
    for each in tokens:
        with pytest.raises(Unauthorized):
            await verifier.accept(each)


@pytest.mark.requirement("B1")
async def test_several_keys_by_their_ids() -> None:
    server = Server(jwk("rsa-1"), jwk("ec-1"), jwk("ed-1"), jwk("rsa-2", alg="PS256"))
    verifier = server.verifier()
    for name, algorithm in (("rsa-1", "RS256"), ("ec-1", "ES256"), ("ed-1", "EdDSA"), ("rsa-2", "PS256")):
        assert await verifier.accept(token(name, algorithm)) == Scope("acme", "ann")
    assert server.reads == 1


@pytest.mark.requirement("B1")
async def test_the_algorithm_belongs_to_the_key() -> None:
    server = Server(jwk("rsa-1"), jwk("rsa-2", alg="PS256"), jwk("ec-1"))
    verifier = server.verifier()
    pem = private("rsa-1").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    await refused(
        verifier,
        token("rsa-1", "PS256"),
        token("rsa-1", "RS512"),
        token("rsa-2", "RS256"),
        token("rsa-1", kid="rsa-2"),  # signed by one, named another
        token("ec-1", "ES256", kid="rsa-1"),
        token("rsa-1", kid=None),
        jwt.encode(claims(), "", algorithm="none", headers={"kid": "rsa-1"}),
        _signed_with_bytes(pem, "rsa-1"),
        _signed_with_bytes(json.dumps(jwk("rsa-1")).encode(), "rsa-1"),
        _signed_with_bytes(b"", "rsa-1"),
    )


def _signed_with_bytes(secret: bytes, kid: Any) -> str:
    import base64
    import hashlib
    import hmac

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "kid": kid}).encode()) + "." + part(json.dumps(claims()).encode())
    return head + "." + part(hmac.new(secret, head.encode(), hashlib.sha256).digest())


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"}, {"kty": "oct", "k": "c2VjcmV0", "kid": "x", "alg": "HS256"},
        jwk("rsa", alg="HS256"), jwk("rsa", alg="none"), jwk("rsa", alg="ES256"), jwk("ec", alg="RS256"),
        jwk("ec", alg="ES384"), jwk("rsa", use="enc"), jwk("rsa", key_ops=["encrypt"]), jwk("rsa", kid=None),
        jwk("rsa", kid=7), jwk("rsa", kid=""), jwk("rsa", n="AQAB"), jwk("rsa", n=None), jwk("ec", crv="P-384"),
        jwk("ec", crv="secp256k1"), jwk("small"), jwk("rsa", kty="RSA2"), jwk("rsa", d="AQAB"), "rsa", None, 7, [],
        jwk("rsa", alg=["RS256"]), jwk("rsa", alg={}), jwk("rsa", use=["sig"]), jwk("rsa", key_ops=[["verify"]]),
        jwk("rsa", n="_" * 20_000), jwk("rsa", kty=["RSA"]), jwk("ec", x=7), jwk("ec", crv=["P-256"]),
    ],
)  # fmt: skip
def test_what_is_no_public_signing_key_is_left_out(entry: Any) -> None:
    good = jwk("ec", kid="good")
    assert set(usable_keys(json.dumps({"keys": [entry, good]}).encode())) == {"good"}


@pytest.mark.requirement("I12")
def test_an_id_that_is_there_twice_is_nobody() -> None:
    both = [jwk("rsa-1", kid="a"), jwk("rsa-2", kid="a"), jwk("ec", kid="b")]
    assert set(usable_keys(json.dumps({"keys": both}).encode())) == {"b"}


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys": 7}', b"\xff", b"[" * 100_000, b'{"keys": [' + b"1," * 101 + b"1]}"]
)
def test_what_is_no_key_set_is_an_error(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is no|'keys' is"):
        usable_keys(document)


@pytest.mark.requirement("B1")
async def test_a_new_key_is_found_and_an_old_one_goes_with_the_set() -> None:
    server = Server(jwk("rsa-1"))
    verifier = server.verifier(jwks_cooldown_s=10)
    await verifier.accept(token("rsa-1"))
    server.keys = [jwk("rsa-1"), jwk("rsa-2")]
    await refused(verifier, token("rsa-2"))  # within the cooldown
    assert server.reads == 1
    server.now += 10
    assert (await verifier.accept(token("rsa-2"))).subject == "ann"
    assert (await verifier.accept(token("rsa-1"))).subject == "ann"
    server.keys = [jwk("rsa-2")]
    server.now += 10
    await refused(verifier, token("ec-1", "ES256"))  # has the set read again
    await refused(verifier, token("rsa-1"))
    server.keys, server.now = [], server.now + 10
    await refused(verifier, token("rsa-1"), token("rsa-2"))  # an empty set withdraws all


@pytest.mark.requirement("B1")
async def test_random_ids_cause_no_storm() -> None:
    server = Server(jwk("rsa-1"))
    verifier = server.verifier(jwks_cooldown_s=10)
    forged = [token("rsa-2", kid=f"random {n}") for n in range(50)]
    await asyncio.gather(*(refused(verifier, each) for each in forged))
    assert server.reads == 1
    server.now += 10
    await asyncio.gather(*(refused(verifier, each) for each in forged))
    assert server.reads == 2
    assert (await verifier.accept(token("rsa-1"))).subject == "ann"


@pytest.mark.requirement("I12")
async def test_a_server_that_is_down_is_bounded_and_told_apart() -> None:
    server = Server(jwk("rsa-1"))
    verifier = server.verifier(jwks_cooldown_s=10, jwks_refresh_s=50, jwks_stale_s=100)
    await verifier.accept(token("rsa-1"))
    server.down = True
    server.now += 90
    assert (await verifier.accept(token("rsa-1"))).subject == "ann"  # the last set counts
    for _ in range(2):
        with pytest.raises(KeysUnavailable):
            await verifier.accept(token("rsa-2"))  # perhaps a new key: cannot be told
        await refused(verifier, token("rsa-1", sub=""), "x", token("rsa-2", kid="rsa-1"))  # wrong whatever the set is
    reads = server.reads
    server.now += 11
    for _ in range(20):
        with pytest.raises(KeysUnavailable):
            await verifier.accept(token("rsa-1"))  # too old by now
    assert server.reads == reads + 1
    server.down, server.now = False, server.now + 10
    assert (await verifier.accept(token("rsa-1"))).subject == "ann"


async def test_garbage_from_the_server_keeps_the_last_set() -> None:
    server = Server(jwk("rsa-1"))
    verifier = server.verifier(jwks_cooldown_s=10)
    await verifier.accept(token("rsa-1"))
    server.keys, server.now = "soon", server.now + 10
    with pytest.raises(KeysUnavailable):
        await verifier.accept(token("rsa-2"))
    assert (await verifier.accept(token("rsa-1"))).subject == "ann"


@pytest.mark.requirement("B1")
async def test_a_file_is_followed_in_the_background_and_answers_503_before_it_is_there(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    world.settings.auth = AuthSettings(jwks_file=path, jwks_refresh_s=0.02, jwks_cooldown_s=0.02)
    world.principal("user:ann")
    async with world.running() as run:

        async def status(name: str) -> int:
            headers = {"Authorization": f"Bearer {token(name)}"}
            return int((await run.client.get("/v1/freshness", headers=headers)).status_code)

        async def until(name: str, wanted: int) -> None:
            end = time.monotonic() + 5
            while await status(name) != wanted:
                assert time.monotonic() < end
                await asyncio.sleep(0.01)

        assert await status("rsa-1") == 503
        path.write_text(json.dumps({"keys": [jwk("rsa-1")]}))
        await until("rsa-1", 200)
        assert await status("rsa-2") in (401, 503)
        path.write_text(json.dumps({"keys": [jwk("rsa-2")]}))
        await until("rsa-2", 200)
        await until("rsa-1", 401)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"jwks_url": "http://id.example/keys"}, "auth.jwks_url"), ({"jwks_url": "file:///etc/x"}, "auth.jwks_url"),
        ({"jwks_url": URL, "jwks_file": "x"}, "auth"), ({"jwks_url": URL, "jwt_secret": SecretStr(SECRET)}, "auth"),
        ({"jwks_url": URL, "jwt_public_key": "x"}, "auth"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        TokenVerifier(AuthSettings(**settings))
    assert error.value.field == field and error.value.remedy


def test_loopback_may_be_plain_http() -> None:
    assert TokenVerifier(AuthSettings(jwks_url="http://127.0.0.1:9/keys")).keyset is not None


@pytest.mark.requirement("I12")
def test_our_own_keys_are_not_made_of_what_everybody_knows() -> None:
    one, two = (TokenVerifier(AuthSettings(jwks_url=URL)) for _ in range(2))
    assert one.derived_key("cursor") != two.derived_key("cursor") and one.log_key() != two.log_key()
    auth = AuthSettings(jwks_url=URL, service_secret=SecretStr("s" * 32))
    same = {TokenVerifier(auth).derived_key("cursor"), TokenVerifier(auth).derived_key("cursor")}
    assert len(same) == 1 and TokenVerifier(auth).derived_key("other") not in same
