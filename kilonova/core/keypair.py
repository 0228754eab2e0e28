"""Key pairs: what a public key's fingerprint is, and how a pair is generated."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_UPN = x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
_YEARS = 10


class Pair(NamedTuple):
    """A generated pair: the private key never leaves the answer to its request."""

    private_key: str
    public_key: str
    fingerprint: str


def fingerprint_of_ssh(public_key: str) -> str:
    """MD5 of an OpenSSH public key, as sixteen pairs of digits; ValueError where it is none."""
    try:
        serialization.load_ssh_public_key(public_key.encode())
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (ValueError, IndexError, UnsupportedAlgorithm, binascii.Error):
        raise ValueError("failed to generate fingerprint") from None
    return _in_pairs(hashlib.md5(blob, usedforsecurity=False).hexdigest())


def fingerprint_of_x509(certificate: str) -> str:
    """SHA-1 of a certificate in PEM, as twenty pairs of digits; ValueError where it is none."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise ValueError("failed to generate X509 fingerprint: it is no certificate in PEM form") from None
    return _in_pairs(loaded.fingerprint(hashes.SHA1()).hex())  # noqa: S303 - the API wants this one


def _in_pairs(digits: str) -> str:
    return ":".join(digits[i : i + 2] for i in range(0, len(digits), 2))


def generate_ssh(comment: str = "Generated-by-Nova") -> Pair:
    """A new RSA pair of 2048 bits, the private key in PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    text = f"{public.decode()} {comment}"
    return Pair(_pem(key, serialization.PrivateFormat.TraditionalOpenSSL), text, fingerprint_of_ssh(text))


def generate_x509(user_id: str) -> Pair:
    """A new key with a certificate that lets ``user_id`` log in over WinRM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user_id[:64])])
    now = datetime.datetime.now(datetime.UTC)
    login = f"{user_id}@localhost".encode()
    size = len(login).to_bytes(2, "big")
    length = size[1:] if len(login) < 128 else b"\x81" + size[1:] if len(login) < 256 else b"\x82" + size
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.OtherName(_UPN, b"\x0c" + length + login)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Pair(_pem(key, serialization.PrivateFormat.PKCS8), text, fingerprint_of_x509(text))


def _pem(key: rsa.RSAPrivateKey, form: serialization.PrivateFormat) -> str:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
