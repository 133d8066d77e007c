"""Certificates of an authority that nobody but a test trusts."""

from __future__ import annotations

import subprocess
from pathlib import Path


def issue(place: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this host, signed by the test's own authority (``ca.pem`` beside it), and its key."""
    place.mkdir(exist_ok=True)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    if not (place / "ca.pem").exists():
        ca = ("-addext", "basicConstraints=critical,CA:TRUE", "-days", "2")
        openssl(*new, "-x509", "-subj", "/CN=test authority", *ca, "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (place / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    signed = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signed, "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem")
    return place / f"{name}.pem", place / f"{name}.key"
