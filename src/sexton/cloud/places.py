"""Where a service of AWS is reached: what the standard ``AWS_ENDPOINT_URL*`` settings say, or AWS itself.

A setting for one service beats the one for all of them; ``AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true`` switches both off.
"""

from __future__ import annotations

from collections.abc import Mapping

# The name a service has in its setting, and the first label of its host at AWS.
_SSM, _SECRETS, _ECR, _S3, _STS = "SSM", "SECRETS_MANAGER", "ECR", "S3", "STS"
_CLOUDWATCH, _LOGS = "CLOUDWATCH", "CLOUDWATCH_LOGS"
HOSTS = {
    _SSM: "ssm",
    _SECRETS: "secretsmanager",
    _ECR: "api.ecr",
    _S3: "s3",
    _STS: "sts",
    _CLOUDWATCH: "monitoring",
    _LOGS: "logs",
}
# Partitions whose names end otherwise, by the beginning of their regions.
_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}


def dns_suffix(region: str) -> str:
    """What the names of AWS's hosts in a region end with."""
    return next((suffix for start, suffix in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com")


def configured(service: str, environment: Mapping[str, str]) -> str:
    """The endpoint that the environment names for a service, or nothing; without a slash at its end."""
    if environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").strip().lower() == "true":
        return ""
    chosen = environment.get(f"AWS_ENDPOINT_URL_{service}", "") or environment.get("AWS_ENDPOINT_URL", "")
    return chosen.strip().rstrip("/")


def endpoint(service: str, region: str, environment: Mapping[str, str]) -> str:
    """The URL of a service in a region."""
    return configured(service, environment) or f"https://{HOSTS[service]}.{region}.{dns_suffix(region)}"
