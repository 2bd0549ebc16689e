"""A customer's webhooks with commands and from Python: made, seen, changed, sent again, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook
from tests.cli.conftest import Sky
from tests.jobs import test_webhooks
from tests.jobs.shop import Customer, Shop
from tests.jobs.test_webhooks import Receiver, wait

import sky

telling, receiver = test_webhooks.telling, test_webhooks.receiver


@pytest.fixture
def customer(telling: Shop) -> Customer:
    return telling.customer()


@pytest.fixture
def buyer(telling: Shop, customer: Customer, tmp_path: Path) -> Sky:
    """The command of a customer."""
    url = str(telling.http.base_url)
    return Sky(tmp_path / "none", tmp_path, SKY_URL=url, SKY_API_KEY=customer.key)


def test_what_commands_make_hears_and_can_be_had_again(
    buyer: Sky, customer: Customer, receiver: Receiver
) -> None:
    empty = buyer("job", "webhook", "list").check()
    assert (empty.out, "sky job webhook add URL" in empty.err) == ("", True)
    made = buyer("job", "webhook", "add", receiver.url, "--type", "job.succeeded").check()
    secret = made.out.strip()
    assert secret.startswith("whsec_")
    [one] = json.loads(buyer("job", "webhook", "list", "-o", "json").check().out)
    assert (one["url"], one["types"], one["enabled"]) == (receiver.url, ["job.succeeded"], True)
    assert "secret" not in one
    assert one["id"] in made.err
    assert secret not in made.err
    customer.ended(customer.submit().json()["id"])
    [(headers, content)] = receiver.until(1)
    Webhook(secret).verify(content, headers)
    ask = ("job", "webhook", "deliveries", one["id"], "-o", "json")
    [sent] = wait(
        lambda: [told for told in json.loads(buyer(*ask).check().out) if told["state"] == "delivered"]
    )
    assert sent["id"] in buyer("job", "webhook", "deliveries", one["id"]).check().out
    rotated = buyer("job", "webhook", "rotate", one["id"]).check().out.strip()
    assert rotated not in ("", secret)
    assert buyer("job", "webhook", "redeliver", one["id"], sent["id"]).check().out == ""
    headers, content = receiver.until(2)[1]
    for each in (secret, rotated):
        Webhook(each).verify(content, headers)


def test_what_is_said_changes_and_the_rest_stays_until_it_is_removed(buyer: Sky, receiver: Receiver) -> None:
    made = buyer("job", "webhook", "add", receiver.url, "--type", "job.failed", "-o", "json").check()
    one = json.loads(made.out)["id"]

    def seen(*words: str) -> tuple[str, list[str] | None, bool]:
        told = json.loads(buyer("job", "webhook", *words, "-o", "json").check().out)
        return told["url"], told["types"], told["enabled"]

    other = f"{receiver.url}/other"
    assert seen("update", one, "--url", other) == (other, ["job.failed"], True)
    types = ("--type", "job.failed", "--type", "job.succeeded")
    assert seen("update", one, *types) == (other, ["job.failed", "job.succeeded"], True)
    assert seen("disable", one) == (other, ["job.failed", "job.succeeded"], False)
    assert seen("update", one, "--all-types") == (other, None, False)
    assert seen("enable", one) == seen("show", one) == (other, None, True)
    assert buyer("job", "webhook", "update", one).code == 2
    assert buyer("job", "webhook", "update", one, "--all-types", "--type", "job.failed").code == 2
    unasked = buyer("job", "webhook", "remove", one)
    assert (unasked.code, "add --yes" in unasked.err) == (4, True)
    tried = buyer("job", "webhook", "remove", one, "--yes", "--dry-run").check()
    assert tried.out == f"{one}, which sends to {other}, would be removed\n"
    buyer("job", "webhook", "remove", one, "--yes").check()
    for words in (("show", one), ("remove", one, "--yes"), ("deliveries", one)):
        missing = buyer("job", "webhook", *words)
        assert missing.code != 0
        assert f"you have no webhook endpoint '{one}'" in missing.err


def test_a_key_that_may_only_read_changes_nothing_and_sees_nobody_elses(
    telling: Shop, buyer: Sky, receiver: Receiver, tmp_path: Path
) -> None:
    made = json.loads(buyer("job", "webhook", "add", receiver.url, "-o", "json").check().out)["id"]
    url = str(telling.http.base_url)
    reader = Sky(tmp_path / "none", tmp_path, SKY_URL=url, SKY_API_KEY=telling.customer(scopes=["read"]).key)
    assert json.loads(reader("job", "webhook", "list", "-o", "json").check().out) == []
    for words in (("add", receiver.url), ("rotate", made), ("remove", made, "--yes")):
        denied = reader("job", "webhook", *words).check(4)
        assert denied.out == ""
        assert "scope_denied: this key may read only; whatever changes something takes" in denied.err
    assert f"you have no webhook endpoint '{made}'" in reader("job", "webhook", "show", made).check(3).err
    buyer("job", "webhook", "show", made).check()


async def test_python_has_the_same_and_awaits_it(
    telling: Shop, customer: Customer, receiver: Receiver
) -> None:
    url = str(telling.http.base_url)
    with sky.Jobs(url, customer.key) as jobs:
        made = jobs.webhooks.add(receiver.url, ["job.succeeded"])
        assert isinstance(made.secret, str)
        assert jobs.webhooks.change(made.id, types="job.failed").types == ("job.failed",)
        assert jobs.webhooks.change(made.id, all_types=True).types is None
        customer.ended(customer.submit().json()["id"])
        sent = wait(lambda: [one for one in jobs.webhooks.deliveries(made.id) if one.state == "delivered"])
        jobs.webhooks.redeliver(made.id, sent[0].id)
        receiver.until(len(sent) + 1)
    async with sky.AsyncJobs(url, customer.key) as later:
        assert [one.id for one in await later.webhooks.list()] == [made.id]
        assert (await later.webhooks.rotate(made.id)).secret not in (made.secret, None)
        assert not (await later.webhooks.change(made.id, enabled=False)).enabled
        assert (await later.webhooks.get(made.id)).url == receiver.url
        listed = [one.id async for one in later.webhooks.deliveries(made.id)]
        assert {one.id for one in sent} <= set(listed)
        again = await later.webhooks.add(receiver.url)
        await later.webhooks.remove(again.id)
        with pytest.raises(sky.JobRefused, match="you have no webhook endpoint"):
            await later.webhooks.get(again.id)
