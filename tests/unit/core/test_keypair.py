"""Fingerprints as the tools of the trade print them, and pairs that fit together."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kilonova.core import keypair

# From the reference's sample of an imported key.
RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDx8nkQv/zgGgB4rMYmIf+6A4l6Rr+o/6lHBQdW5aYd44bd8JttDCE/F/pNRr0lRE+"
    "PiqSPO8nDPHw0010JeMH9gYgnnFlyY3/OcJ02RhIPyyxYpv9FhY+2YiUkpwFOcLImyrxEsYXpD/0d3ac30bNH6Sw9JD9UZHYcpSxsIbECHw== "
    "Generated-by-Nova"
)
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUd0DCIyy4ANO7D8bgRvYHpXhuqJQcRwyzFHcYzM me@here"


def test_fingerprint_of_an_rsa_key() -> None:
    assert keypair.fingerprint_of_ssh(RSA) == "1e:2c:9b:56:79:4b:45:77:f9:ca:7a:98:2c:b0:d5:3c"


def test_other_kinds_have_one_too() -> None:
    assert len(keypair.fingerprint_of_ssh(ED25519).split(":")) == 16


@pytest.mark.parametrize("text", ["", "garbage", "ssh-rsa", "ssh-rsa AAAA", RSA[:60], "ssh-rsa " + "A" * 10_000])
def test_no_fingerprint_of_garbage(text: str) -> None:
    with pytest.raises(ValueError, match="failed to generate fingerprint"):
        keypair.fingerprint_of_ssh(text)


def test_generated_ssh_pair_fits() -> None:
    made = keypair.generate_ssh()
    private = serialization.load_pem_private_key(made.private_key.encode(), password=None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert made.public_key == f"{public.decode()} Generated-by-Nova"
    assert made.fingerprint == keypair.fingerprint_of_ssh(made.public_key)


def test_generated_certificate_names_its_user() -> None:
    made = keypair.generate_x509("fd3ab" * 30)
    certificate = x509.load_pem_x509_certificate(made.public_key.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    [other] = names.get_values_for_type(x509.OtherName)
    assert other.value.endswith(("fd3ab" * 30).encode() + b"@localhost")
    assert len(made.fingerprint.split(":")) == 20
    with pytest.raises(ValueError, match="X509"):
        keypair.fingerprint_of_x509(RSA)
