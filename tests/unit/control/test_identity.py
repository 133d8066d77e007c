"""Identity documents: taken unsigned unless certificates are given, and then only by EC2's word for this region."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest

from sexton.control.identity import IdentityCheck, IdentityError
from sexton.wire.errors import ClientException
from unit.control.world import REGION

DOCUMENT = json.dumps({"instanceId": "i-0123456789abcdef0", "region": REGION, "accountId": "1"}, indent=2)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    place = tmp_path_factory.mktemp("identity")

    def openssl(*words):
        return subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True).stdout

    (place / "document").write_text(DOCUMENT)
    for name, kind in (("ec2", "rsa:2048"), ("other", "rsa:1024"), ("small", "rsa:768")):
        openssl("req", "-x509", "-newkey", kind, "-nodes", "-subj", f"/CN={name}", "-days", "2", "-keyout",
                f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
        signature = openssl("dgst", "-sha256", "-sign", f"{name}.key", "document")
        (place / f"{name}.signature").write_text(base64.encodebytes(signature).decode())
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    openssl("req", "-x509", *ec, "-nodes", "-subj", "/CN=ec", "-days", "2", "-keyout", "ec.key", "-out", "ec.pem")
    for name in ("ec2", "other"):
        openssl("cms", "-sign", "-binary", "-in", "document", "-signer", f"{name}.pem", "-inkey", f"{name}.key",
                "-outform", "DER", "-out", f"{name}.p7", "-md", "sha256")  # fmt: skip
        (place / f"{name}.pkcs7").write_text(base64.encodebytes((place / f"{name}.p7").read_bytes()).decode())
    (place / "both.pem").write_text((place / "other.pem").read_text() + "\n" + (place / "ec2.pem").read_text())
    return place


def said(pki, name):
    return (pki / name).read_text()


async def test_what_ec2_signed_is_believed_whichever_way_it_signed(pki):
    for certificates in ("ec2.pem", "both.pem"):
        check = IdentityCheck.load(pki / certificates)
        for signature in ("ec2.signature", "ec2.pkcs7"):
            await check.check(DOCUMENT, said(pki, signature), REGION)


async def test_what_somebody_else_signed_or_changed_is_not(pki):
    check = IdentityCheck.load(pki / "ec2.pem")
    changed = DOCUMENT.replace("i-0", "i-1")
    for document, signature, region, why in (
        (DOCUMENT, said(pki, "other.signature"), REGION, "by none of the certificates"),
        (DOCUMENT, said(pki, "other.pkcs7"), REGION, "by none of the certificates"),
        (changed, said(pki, "ec2.signature"), REGION, "by none of the certificates"),
        (changed, said(pki, "ec2.pkcs7"), REGION, "by none of the certificates"),
        (DOCUMENT, "AAAA", REGION, "by none of the certificates"),
        (DOCUMENT, "%%%", REGION, "no base64"),
        (DOCUMENT, said(pki, "ec2.signature"), "eu-west-1", "of region 'us-east-1'"),
        ("[]", said(pki, "ec2.signature"), REGION, "not readable"),
        ("", "", REGION, "there is none"),
        (None, None, REGION, "there is none"),
    ):
        with pytest.raises(ClientException, match=why):
            await check.check(document, signature, region)


async def test_every_byte_of_a_signature_counts(pki):
    check = IdentityCheck.load(pki / "ec2.pem")
    good = base64.b64decode(said(pki, "ec2.signature"))
    for index in range(0, len(good), 17):
        bad = bytearray(good)
        bad[index] ^= 1
        with pytest.raises(ClientException):
            await check.check(DOCUMENT, base64.b64encode(bad).decode(), REGION)


def test_certificates_that_cannot_be_used_are_named(pki, tmp_path):
    (tmp_path / "empty").write_text("hello")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for path, why in (
        (tmp_path / "absent", "No such file"),
        (tmp_path / "empty", "holds no certificate"),
        (tmp_path / "broken", "no X.509 certificate"),
        (pki / "ec.pem", "no RSA key"),
        (pki / "small.pem", "at least 1024"),
    ):
        with pytest.raises(IdentityError, match=why):
            IdentityCheck.load(path)


async def test_registration_asks_for_the_document_when_it_is_told_to(world, pki):
    await world.join()  # unsigned, as nothing is to be verified
    world.context = world.context._replace(identity=IdentityCheck.load(pki / "ec2.pem"))

    with pytest.raises(ClientException, match="could not be verified: there is none"):
        await world.join()
    fields = {"instanceIdentityDocument": DOCUMENT, "instanceIdentityDocumentSignature": said(pki, "ec2.signature")}
    arn = await world.join(**fields)

    assert (await world.instance(arn))["ec2InstanceId"] == "i-0123456789abcdef0"
