"""Account settings: a principal's own choice, else root's, else the default; and what they do to new clusters."""

from __future__ import annotations

import pytest

from sexton.core import accountsettings
from sexton.wire.ecs import SettingName
from sexton.wire.errors import InvalidParameterException
from unit.control.world import open_world

ROOT = "arn:aws:iam::123456789012:root"
CALLER = "arn:aws:iam::123456789012:user/AKSXEXAMPLE"
ROLE = "arn:aws:iam::123456789012:role/path/deployer"


async def effective(world, name, **fields):
    answer = await world.do("ListAccountSettings", name=name, effectiveSettings=True, **fields)
    (setting,) = answer["settings"]
    return setting["value"], setting["principalArn"]


def test_every_setting_of_the_model_is_known_and_its_default_is_allowed():
    assert set(accountsettings.SETTINGS) == set(SettingName)
    assert all(known.default in known.values for known in accountsettings.SETTINGS.values())


async def test_own_choice_before_roots_before_the_default(world):
    name = "containerInsights"
    assert await effective(world, name) == ("disabled", ROOT)

    put = await world.do("PutAccountSettingDefault", name=name, value="enabled")
    assert put["setting"] == {"name": name, "value": "enabled", "principalArn": ROOT, "type": "user"}
    assert await effective(world, name) == ("enabled", ROOT)

    put = await world.do("PutAccountSetting", name=name, value="enhanced")
    assert put["setting"]["principalArn"] == CALLER
    assert await effective(world, name) == ("enhanced", CALLER)
    assert await effective(world, name, principalArn=ROLE) == ("enabled", ROOT)

    for _ in range(2):
        gone = await world.do("DeleteAccountSetting", name=name)
        assert (gone["setting"]["value"], gone["setting"]["principalArn"]) == ("enabled", CALLER)
    assert await effective(world, name) == ("enabled", ROOT)
    await world.do("DeleteAccountSetting", name=name, principalArn=ROOT)
    assert await effective(world, name) == ("disabled", ROOT)


async def test_without_effective_only_own_choices_are_listed(world):
    await world.do("PutAccountSettingDefault", name="containerInsights", value="enabled")
    await world.do("PutAccountSetting", name="awsvpcTrunking", value="enabled", principalArn=ROLE)

    assert (await world.do("ListAccountSettings"))["settings"] == []
    listed = (await world.do("ListAccountSettings", principalArn=ROLE))["settings"]
    assert [(one["name"], one["value"], one["principalArn"]) for one in listed] == [("awsvpcTrunking", "enabled", ROLE)]


async def test_filters_and_pages(world):
    every = await world.do("ListAccountSettings", effectiveSettings=True)
    rest = await world.do("ListAccountSettings", effectiveSettings=True, nextToken=every["nextToken"])
    small = await world.do("ListAccountSettings", effectiveSettings=True, maxResults=3)

    names = [one["name"] for one in every["settings"] + rest["settings"]]
    assert names == sorted(SettingName)
    assert len(every["settings"]) == 10
    assert [one["name"] for one in small["settings"]] == names[:3]
    asked = {"name": "containerInsights", "effectiveSettings": True}
    assert (await world.do("ListAccountSettings", value="enabled", **asked))["settings"] == []
    assert len((await world.do("ListAccountSettings", value="disabled", **asked))["settings"]) == 1
    with pytest.raises(InvalidParameterException, match="setting name"):
        await world.do("ListAccountSettings", value="enabled")


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"name": "containerInsights", "value": "on"}, "enhanced, enabled, disabled"),
        ({"name": "fargateTaskRetirementWaitPeriod", "value": "8"}, "0, 7, 14"),
        ({"name": "taskLongArnFormat", "value": "disabled"}, "no longer disable Long Arn"),
        ({"name": "guardDutyActivate", "value": "on"}, "managed by AWS"),
        ({"name": "nonsense", "value": "on"}, "enum value set"),
        ({"name": "containerInsights", "value": "enabled", "principalArn": "root"}, "principal ARN"),
        (
            {"name": "containerInsights", "value": "enabled", "principalArn": "arn:aws:iam::999999999999:root"},
            "principal ARN",
        ),
    ],
)
async def test_what_is_refused(world, fields, said):
    with pytest.raises(InvalidParameterException, match=said):
        await world.do("PutAccountSetting", **fields)


async def test_new_clusters_get_the_container_insights_of_whoever_makes_them(world):
    async def insights(cluster):
        answer = await world.do("DescribeClusters", clusters=[cluster], include=["SETTINGS"])
        return answer["clusters"][0]["settings"]

    await world.do("PutAccountSettingDefault", name="containerInsights", value="enabled")
    await world.do("CreateCluster", clusterName="a")
    await world.do("CreateCluster", clusterName="b", settings=[{"name": "containerInsights", "value": "disabled"}])

    assert await insights("a") == [{"name": "containerInsights", "value": "enabled"}]
    assert await insights("b") == [{"name": "containerInsights", "value": "disabled"}]
    assert await insights("default") == [{"name": "containerInsights", "value": "disabled"}]


async def test_choices_outlive_the_process(tmp_path):
    async with open_world(tmp_path) as world:
        await world.do("PutAccountSetting", name="awsvpcTrunking", value="enabled")
    async with open_world(tmp_path) as world:
        assert await effective(world, "awsvpcTrunking") == ("enabled", CALLER)
