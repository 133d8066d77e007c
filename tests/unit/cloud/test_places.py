"""Services are found where the standard settings say, and at AWS otherwise."""

from __future__ import annotations

import pytest

from sexton.cloud.places import endpoint


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "https://secretsmanager.eu-west-1.amazonaws.com"),
        ({"AWS_ENDPOINT_URL": "http://here:1/"}, "http://here:1"),
        ({"AWS_ENDPOINT_URL": "http://here:1", "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://there:2"}, "http://there:2"),
        (
            {"AWS_ENDPOINT_URL": "http://here:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "https://secretsmanager.eu-west-1.amazonaws.com",
        ),
        ({"AWS_ENDPOINT_URL_SSM": "http://there:2"}, "https://secretsmanager.eu-west-1.amazonaws.com"),
    ],
)
def test_a_service_is_where_the_settings_say(environment, found):
    assert endpoint("SECRETS_MANAGER", "eu-west-1", environment) == found


def test_hosts_of_other_partitions_end_otherwise():
    assert endpoint("ECR", "cn-north-1", {}) == "https://api.ecr.cn-north-1.amazonaws.com.cn"
    assert endpoint("S3", "us-gov-west-1", {}) == "https://s3.us-gov-west-1.amazonaws.com"
