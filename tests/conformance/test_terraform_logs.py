"""Terraform's AWS provider, unmodified, on log groups: apply, change, plan, destroy. No container engine is needed.

Where the provider comes from is said in ``test_terraform.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from plane import Running

CONFIGURATION = Path(__file__).parent.parent / "data" / "terraform-logs"
PLUGINS = ("/opt/tf-plugins", "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="there is no terraform on this machine"),
]


def test_apply_change_plan_destroy(tmp_path: Path) -> None:
    root = shutil.copytree(CONFIGURATION, tmp_path / "configuration")
    with Running(tmp_path / "plane") as running:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "AWS_ACCESS_KEY_ID": running.plane.key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": running.plane.key.secret_access_key,
            "TF_VAR_endpoint": f"http://{running.plane.host}",
        }
        config = os.environ.get("TF_CLI_CONFIG_FILE", "")
        plugins = [one for one in (os.environ.get("SEXTON_TF_PLUGINS"), *PLUGINS) if one and Path(one).is_dir()]
        if Path(config).is_file():
            environment["TF_CLI_CONFIG_FILE"], plugins = config, []

        def terraform(*words: str, **variables: object) -> str:
            given = {f"TF_VAR_{name}": str(value) for name, value in variables.items()}
            done = subprocess.run(
                ["terraform", words[0], "-no-color", "-input=false", *words[1:]],
                cwd=root,
                env=environment | given,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            assert done.returncode == 0, f"terraform {' '.join(words)}:\n{done.stdout}\n{done.stderr}"
            return done.stdout

        logs = running.client("logs")
        terraform("init", *(f"-plugin-dir={one}" for one in plugins[:1]))
        terraform("apply", "-auto-approve", team="a", retention=7)
        group = logs.describe_log_groups(logGroupNamePrefix="/tf/")["logGroups"][0]
        assert (group["logGroupName"], group["retentionInDays"]) == ("/tf/web", 7)
        assert logs.list_tags_for_resource(resourceArn=group["logGroupArn"])["tags"] == {"team": "a", "owner": "tests"}

        second = {"team": "b", "retention": 14}
        terraform("apply", "-auto-approve", **second)
        assert logs.describe_log_groups(logGroupNamePrefix="/tf/")["logGroups"][0]["retentionInDays"] == 14
        # Anything that is to be changed would end with 2.
        assert "No changes." in terraform("plan", "-detailed-exitcode", **second)
        terraform("destroy", "-auto-approve", **second)
        assert logs.describe_log_groups(logGroupNamePrefix="/tf/")["logGroups"] == []
