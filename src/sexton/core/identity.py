"""Whether a document was signed by the owner of a certificate: RSA with SHA-256, as EC2 signs identity documents.

Only verification is here, which handles no secret: a public power, and a comparison with the one padding that the
standard (PKCS #1 v1.5) allows. The padding is built and compared whole, never parsed, so there is nothing to be lenient
about.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

# The SHA-256 DigestInfo up to the digest, in DER.
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")
_RSA = bytes.fromhex("06092a864886f70d010101")
_SEQUENCE, _INTEGER, _BITS, _VERSION = 0x30, 0x02, 0x03, 0xA0
LEAST_BITS = 1024
"""EC2's own older certificates have so many; fewer are no protection."""


class NotRsa(ValueError):  # noqa: N818 - says what the certificate is
    """The certificate holds no RSA key that could be used here."""


class PublicKey(NamedTuple):
    modulus: int
    exponent: int


class _Der(NamedTuple):
    tag: int
    body: bytes
    whole: bytes


def public_key_of(certificate: bytes) -> PublicKey:
    """The key of an X.509 certificate in DER; NotRsa when there is none."""
    try:
        signed = _items(_one(_one(certificate).body).body)
        fields = signed[1:] if signed[0].tag == _VERSION else signed
        algorithm, bits = _items(fields[5].body)
        if not algorithm.body.startswith(_RSA) or bits.tag != _BITS:
            raise NotRsa("it holds no RSA key")
        modulus, exponent = (int.from_bytes(one.body, "big") for one in _items(_one(bits.body[1:]).body)[:2])
    except (IndexError, ValueError) as error:
        raise NotRsa(str(error) if isinstance(error, NotRsa) else "it is no X.509 certificate") from None
    if modulus.bit_length() < LEAST_BITS or exponent < 3:
        raise NotRsa(f"its key has {modulus.bit_length()} bits; at least {LEAST_BITS} are needed")
    return PublicKey(modulus, exponent)


def signed_by(key: PublicKey, document: bytes, signature: bytes) -> bool:
    """Whether this is the key owner's signature of the document."""
    size = (key.modulus.bit_length() + 7) // 8
    number = int.from_bytes(signature, "big")
    if len(signature) != size or number >= key.modulus:
        return False
    digest = _SHA256 + hashlib.sha256(document).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    return pow(number, key.exponent, key.modulus).to_bytes(size, "big") == padded


def _items(data: bytes) -> list[_Der]:
    found = []
    while data:
        one = _one(data)
        found.append(one)
        data = data[len(one.whole) :]
    return found


def _one(data: bytes) -> _Der:
    """The first value in DER."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    end = start + length
    if end > len(data):
        raise ValueError("it is cut off")
    return _Der(tag, data[start:end], data[:end])
