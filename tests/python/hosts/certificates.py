"""A certificate authority for tests, and the certificates it signs."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from iotax.study.hosts import Tls


class Authority:
    """An authority that keeps its files below `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._file = folder / f"{name}.pem"
        self._file.write_bytes(self._signed(name, self._key.public_key(), authority=True))

    def issue(self, name: str) -> Tls:
        """Issues a certificate for `name`, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert, private = self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem"
        cert.write_bytes(self._signed(name, key.public_key(), authority=False))
        form, nothing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, nothing))
        return Tls(ca=str(self._file), cert=str(cert), key=str(private))

    def _signed(self, name: str, key: ec.EllipticCurvePublicKey, *, authority: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
