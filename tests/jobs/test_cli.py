"""Selling and buying with commands: what an operator and a customer type, from outside.

Decides: exit codes, what goes to which stream, that each command may be repeated. Never: imports a command.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
from decimal import Decimal
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND_S, Ended, Sky, without_daemon
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.jobs.shop import Customer, Shop, body

SUBMIT = ("job", "submit", "--sku", "cpu", "--image", "local", "--max-runtime", "1m")


@pytest.fixture
def operator(selling: RunningDaemon, tmp_path: Path) -> Sky:
    """The command of whom the shop belongs to."""
    return Sky(selling.home, tmp_path)


@pytest.fixture
def buyer(selling: RunningDaemon, customer: Customer, tmp_path: Path) -> Sky:
    """The command of a customer with a hundred dollars."""
    (tmp_path / "buyer").mkdir()
    return Sky(tmp_path / "none", tmp_path / "buyer", SKY_URL=selling.url, SKY_API_KEY=customer.key)


@pytest.fixture
def nobody(tmp_path: Path) -> Sky:
    """The command of somebody who has no daemon."""
    return without_daemon(tmp_path)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for an account of this test."""
    return re.sub(r"\W+", "-", request.node.name)[:40].strip("-") + f"-{os.getpid()}"


def together(sky: Sky, *commands: list[str]) -> list[Ended]:
    """Commands on accounts, one after the other, without loading the command each time."""
    return sky.together([["admin", "account", *words] for words in commands])


# ── operators ───────────────────────────────────────────────────────────────────────────────────


def test_an_account_from_its_making_to_its_end(operator: Sky, name: str) -> None:
    make = ["create", name, "--idempotency-key", name]
    pay = ["topup", name, "12.50", "--payment", f"{name}-1"]
    made, again, taken, paid, twice, given, listed, shown = together(
        operator,
        *(make, make, ["create", name], pay, pay),
        ["credit", name, "1", "--payment", f"{name}-g", "--note", "welcome"],
        *(["statement", name, "-o", "json"], ["statement", name]),
    )
    assert re.fullmatch(r"acc_\w+\n", made.check().out)
    assert again.check().out == made.out
    assert taken.check(4).err.startswith("error: name_taken: ")
    assert paid.check().out == f"{name} has $12.50\n"
    assert (twice.check().out, "counted before" in twice.err) == (paid.out, True)
    assert given.check().out == f"{name} has $13.50\n"
    assert [(e["kind"], e["amount_usd"], e["balance_usd"]) for e in listed.check().json()["items"]] == [
        ("top_up", "12.500000", "12.500000"),
        ("credit", "1.000000", "13.500000"),
    ]
    assert "welcome" in shown.check().out


def test_a_payment_is_never_taken_for_another_one(operator: Sky, name: str) -> None:
    other = f"{name}-other"
    *_, paid, elsewhere, more, gift, shown = together(
        operator,
        ["create", name],
        ["create", other],
        ["topup", name, "5", "--payment", name],
        ["topup", other, "5", "--payment", name],
        ["topup", name, "6", "--payment", name],
        ["credit", name, "1", "--payment", name],
        ["get", other, "-o", "json"],
    )
    assert paid.check().out == f"{name} has $5.00\n"
    for refused in (elsewhere, more):
        said = refused.check(4).err
        assert said.startswith("error: idempotency_conflict: ")
        assert f"was counted before, with 5.000000 USD for account {name}\n" in said
        assert f"sky admin account statement {name}" in said
    assert gift.check().out == f"{name} has $6.00\n", "gifts have names of their own"
    assert shown.check().json()["available_usd"] == "0.000000"


def test_a_payment_is_taken_off_again_once(operator: Sky, shop: Shop, name: str) -> None:
    off = ["refund", name, "--reason", "told twice", "--yes", "--payment"]
    *_, unasked, tried, never_tried, part, again, other, gift, more, never, full, foreign, statement = (
        together(
            operator,
            ["create", name],
            ["topup", name, "25", "--payment", f"{name}-1"],
            ["topup", name, "5", "--payment", f"{name}-2"],
            ["credit", name, "2", "--payment", f"{name}-1"],
            ["create", f"{name}-b"],
            ["topup", f"{name}-b", "3", "--payment", f"{name}-b"],
            ["refund", name, "--payment", f"{name}-1", "--reason", "told twice"],
            [*off, f"{name}-1", "--amount", "22", "--dry-run"],
            [*off, "never", "--dry-run"],
            *([*off, f"{name}-1", "--amount", usd] for usd in ("22", "22", "23")),
            [*off, f"{name}-1", "--gift"],
            [*off, f"{name}-2", "--amount", "5.01"],
            *([*off, payment] for payment in ("never", f"{name}-2", f"{name}-b")),
            ["statement", name, "-o", "json"],
        )
    )
    assert unasked.check(4).err.startswith("error: not_confirmed: ")
    assert tried.check().out == f"{name} would have $10.00\n"
    assert "has no payment 'never'" in never_tried.check(3).err
    assert part.check().out == f"{name} has $10.00\n"
    assert "before" not in part.err, "trying it took nothing"
    assert (again.check().out, "nothing changed" in again.err) == (part.out, True)
    assert other.check(4).err.startswith("error: idempotency_conflict: another amount of ")
    assert gift.check().out == f"{name} has $8.00\n"
    assert "amount_usd: '5.010000' is not accepted" in more.check(2).err
    assert "up to the 5.000000 USD" in more.err
    for unknown in (never, foreign):
        assert unknown.check(3).err.startswith(f"error: not_found: account {name} has no payment ")
    assert full.check().out == f"{name} has $3.00\n"
    taken = [entry for entry in statement.check().json()["items"] if entry["kind"] == "refund"]
    assert [entry["amount_usd"] for entry in taken] == ["-22.000000", "-2.000000", "-5.000000"]
    assert {entry["note"] for entry in taken} == {"told twice"}
    shop.audit()


def test_what_is_held_for_jobs_is_not_taken_off(operator: Sky, shop: Shop) -> None:
    customer = shop.customer(paid="1")
    who = shop.operate("GET", f"/accounts/{customer.account}")["name"]
    job = customer.submit(body(spec__command=["sleep", "60"])).json()["id"]
    off = ["refund", who, "--payment", f"pay-{who}", "--reason", "by mistake", "--yes"]
    [short] = together(operator, off)
    assert short.check(2).err.startswith(f"error: invalid_request: account {who} has 0.9")
    assert shop.operate("GET", f"/accounts/{who}")["available_usd"] < "1"
    customer("POST", f"/jobs/{job}/cancel")
    settled = customer.ended(job)["usage"]["settled_cost_usd"]
    [rest] = together(operator, [*off, "--amount", str(1 - Decimal(settled))])
    rest.check()
    assert shop.operate("GET", f"/accounts/{who}")["available_usd"] == "0.000000"
    shop.audit()


def test_an_account_is_stopped_let_go_on_and_closed(operator: Sky, name: str) -> None:
    words = ("suspend", "suspend", "resume", "resume", "disable", "enable")
    _, *changed, asked, closed, again, unpaid = together(
        operator,
        ["create", name],
        *([word, name, "-o", "json"] for word in words),
        ["close", name, "--dry-run"],
        ["close", name, "--yes", "-o", "json"],
        ["close", name, "--dry-run"],
        ["topup", name, "1", "--payment", f"{name}-2"],
    )
    states = [(told.check().json()["state"], told.json()["enabled"]) for told in changed]
    assert states == [
        *(("suspended", True), ("suspended", True), ("active", True), ("active", True)),
        *(("active", False), ("active", True)),
    ]
    assert "this account would be closed, and was not" in asked.check().err
    assert closed.check().json()["state"] == "closed"
    assert "this account is closed already, and stays so" in again.check().err
    assert "is closed" in unpaid.check(2).err


def test_budgets_are_set_and_shown(operator: Sky, shop: Shop, name: str) -> None:
    _, first, more, shown, wrong, nothing = together(
        operator,
        ["create", name],
        ["budget", name, "--month", "300", "-o", "json"],
        ["budget", name, "--day", "20"],
        ["get", name],
        ["budget", name, "--day", "lots"],
        ["budget", name],
    )
    assert first.check().json()["budget"]["month_usd"] == "300.000000"
    assert more.check().out == f"{name} may spend $20.00 a day and $300.00 a month\n"
    assert re.search(r"budget a day +\$20.00", shown.check().out)
    assert "is no amount" in wrong.check(2).err
    assert "no budget was given" in nothing.check(2).err
    key = shop.operate("POST", f"/accounts/{name}/keys", json={})["id"]
    with_key = operator.together([["admin", "key", "budget", key, "--day", "5", "-o", "json"]])[0]
    assert with_key.check().json()["budget"] == {"day_usd": "5.000000", "month_usd": None}


def test_limits_are_set_one_by_one(operator: Sky, name: str) -> None:
    limit = ["limit", name, "-o", "json"]
    _, first, more, back, shown, wrong, nowhere = together(
        operator,
        ["create", name],
        [*limit, "--jobs", "5"],
        [*limit, "--queued", "none", "--gpus", "hyperscaler=4", "--gpus", "marketplace=0"],
        [*limit, "--jobs", "default", "--gpus", "hyperscaler=none"],
        ["get", name],
        ["limit", name, "--jobs", "many"],
        ["limit", name, "--gpus", "cloud=1"],
    )
    assert first.check().json()["limits"] == {"max_active_jobs": 5}
    assert more.check().json()["limits"] == {
        "max_active_jobs": 5,
        "max_queued_jobs": None,
        "max_gpus": {"hyperscaler": 4, "marketplace": 0},
    }
    left = {"max_queued_jobs": None, "max_gpus": {"hyperscaler": None, "marketplace": 0}}
    assert back.check().json()["limits"] == left
    assert re.search(r"limit max_gpus +hyperscaler none, marketplace 0", shown.check().out)
    assert "is no limit" in wrong.check(2).err
    assert "names no tier" in nowhere.check(2).err


def test_a_key_is_shown_once_and_refused_once_it_is_revoked(
    operator: Sky, selling: RunningDaemon, name: str
) -> None:
    operator("admin", "account", "create", name).check()
    made = operator(
        "admin", "key", "create", name, "--name", "ci", "--scope", "read", "--expires", "1d"
    ).check()
    assert re.fullmatch(r"uck_[0-9A-Za-z]{40}\n", made.out), "the key and nothing else"
    key = made.out.strip()
    assert key not in made.err
    page = operator("admin", "key", "list", name)
    assert key not in page.check().out
    [told] = operator.json_of("admin", "key", "list", name)["items"]
    assert (told["name"], told["scopes"], told["key"]) == ("ci", ["read"], None)
    bought = {"SKY_URL": selling.url, "SKY_API_KEY": key}
    assert operator("job", "list", "-o", "json", **bought).check().json() == []
    denied = operator(*SUBMIT, "--", "true", **bought).check(4)
    assert denied.err.startswith("error: scope_denied: ")
    tried = operator("admin", "key", "revoke", told["id"], "--dry-run").check()
    assert tried.out.startswith(f"{told['id']} (ci, ")
    assert "revoked" not in operator("admin", "key", "list", name).check().out
    operator("admin", "key", "revoke", told["id"], "--yes").check()
    operator("admin", "key", "revoke", told["id"], "--yes").check()
    refused = operator("job", "list", **bought).check(4)
    assert refused.err.startswith("error: invalid_key: ")
    assert "revoked" in operator("admin", "key", "list", name).check().out


def test_a_name_that_is_nearly_right_is_told(operator: Sky, name: str) -> None:
    operator("admin", "account", "create", name).check()
    wrong = operator("admin", "account", "get", name[:-1] + "x").check(3)
    assert f"did you mean `{name}`?" in wrong.err
    wrong = operator("admin", "key", "revoke", "key_none", "-y").check(3)
    assert wrong.err.splitlines()[1] == "hint: `sky admin key list` shows those there are"
    listed = operator("admin", "account", "list", "--limit", "1").check()
    assert name in listed.out


@IN_A_FILE
def test_a_ledger_that_was_tampered_with_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    own = RunningDaemon(home, free_port())
    own.start()
    try:
        sky = Sky(home, tmp_path)
        pay = [["topup", who, usd, "--payment", f"p-{who}"] for who, usd in (("a", "10"), ("b", "20"))]
        for told in together(sky, ["create", "a"], ["create", "b"], *pay):
            told.check()
        assert sky("admin", "ledger", "verify").check().out == "4 lines add up\n"
        with sqlite3.connect(home / "sky.db", timeout=10) as database:
            [(seq,)] = database.execute(
                "SELECT seq FROM ledger WHERE amount_micro = 20000000 AND account LIKE '%/available'"
            )
            database.execute("DROP TRIGGER IF EXISTS ledger_is_final")
            database.execute("UPDATE ledger SET amount_micro = 90000000 WHERE seq = ?", (seq,))
        database.close()
        wrong = sky("admin", "ledger", "verify").check(1)
        assert re.search(rf"^{seq} ", wrong.out, re.MULTILINE)
        told = sky("admin", "ledger", "verify", "-o", "json").check(1).json()
        assert told["ok"] is False
        assert seq in [finding["seq"] for finding in told["findings"]]
    finally:
        own.stop()


# ── customers ───────────────────────────────────────────────────────────────────────────────────


def test_a_job_from_submit_to_bill(buyer: Sky, shop: Shop) -> None:
    done = buyer(
        *(*SUBMIT, "--env", "A=b=c", "--metadata", "run=7", "--wait", "--"),
        *("sh", "-c", "echo $A; echo -n two"),
    ).check()
    assert re.fullmatch(r"job_\w{26}\n", done.out)
    job = done.out.strip()
    assert re.search(rf"^{job} succeeded; settled: \$0\.0\d+$", done.err, re.MULTILINE)
    told = buyer.json_of("job", "get", job)
    assert (told["status"], told["metadata"], told["spec"]["env"]) == (
        "succeeded",
        {"run": "7"},
        {"A": "b=c"},
    )
    assert buyer("job", "logs", job).check().out == "b=c\ntwo\n"
    assert buyer("job", "logs", job, "--follow").check().out == "b=c\ntwo\n"
    assert [one["id"] for one in buyer.json_of("job", "list", "--status", "succeeded")] == [job]
    assert job in buyer("job", "list").check().out
    assert re.search(r"^settled +\$0\.0\d+$", buyer("job", "get", job).check().out, re.MULTILINE)
    events = buyer("job", "events", job, "-o", "json").check().out.splitlines()
    assert [json.loads(line)["type"] for line in events][0::4] == ["job.queued", "job.succeeded"]
    assert "job.placed" in buyer("job", "events", job, "--follow").check().out
    assert buyer("job", "wait", job).check().out == ""
    assert buyer("job", "cancel", job).check(4).err.startswith("error: job_terminal: ")
    none = buyer("job", "download", job).check(3)
    assert "kept no files" in none.err
    shop.audit()


def test_following_prints_the_log_and_ends_as_the_job_did(buyer: Sky) -> None:
    done = buyer(*SUBMIT, "--follow", "--", "sh", "-c", "echo one; echo two; exit 3").check(1)
    assert done.out == "one\ntwo\n"
    assert "error: job_failed: job_" in done.err
    assert "command_failed" in done.err
    assert "settled: $" in done.err
    told = buyer(*SUBMIT, "-f", "-o", "json", "--", "sh", "-c", "echo one; exit 3").check(1)
    assert told.json()["status"] == "failed"
    assert "one" in told.err.splitlines()


def test_what_a_job_costs_is_told_before_and_after(buyer: Sky) -> None:
    words = ("--sku", "cpu", "--image", "local", "--max-runtime", "1m", "--", "true")
    assert re.search(r"costs at most +\$0\.06$", buyer("job", "estimate", *words).check().out, re.MULTILINE)
    tried = buyer("job", "submit", "--dry-run", *words).check()
    assert re.search(r"costs at most +\$0\.06$", tried.out, re.MULTILINE)
    assert tried.err.endswith("nothing was submitted\n")
    assert buyer.json_of("job", "list") == []
    told = buyer.json_of("job", "estimate", "-o", "json", *words)
    assert (told["hold_usd"], told["ceiling_usd"]) == ("0.060000", "0.060000")
    assert buyer.json_of("job", "list") == [], "nothing was submitted"
    assert re.search(r"available +\$100\.00", buyer("job", "balance").check().out)
    first = buyer(*SUBMIT, "--", "sh", "-c", "exit 3").check().out.strip()
    after = buyer(*SUBMIT, "--after", first, "--retries", "2", "--wait", "-o", "json", "--", "true").check(1)
    assert (after.json()["after"], after.json()["retry"]) == ([first], {"max": 2, "on": ["interrupted"]})
    assert "dependency_failed" in after.err
    usage = buyer.json_of("job", "usage", "--by", "sku")
    assert [(line["key"], line["jobs"]) for line in usage["data"]] == [("cpu", 2)]
    shown = buyer("job", "usage", "--by", "sku").check().out
    assert re.search(r"^all +2 ", shown, re.MULTILINE)
    assert buyer("job", "usage", "--since", "tomorrow").check(2).err.startswith("error: invalid_parameter: ")


def test_waiting_gives_up_and_cancelling_ends(buyer: Sky) -> None:
    job = buyer(*SUBMIT, "--", "sleep", "600").check().out.strip()
    late = buyer("job", "wait", job, "--timeout", "1").check(1)
    assert late.err.startswith("error: not_ended: ")
    assert buyer.json_of("job", "cancel", job)["status"] == "cancelled"
    assert buyer("job", "wait", job).check(1).err.startswith("error: job_failed: ")
    near = buyer("job", "get", job[:-1]).check(3)
    assert f"did you mean `{job}`?" in near.err


def test_what_is_sold_can_be_read_without_a_key(operator: Sky) -> None:
    nouns = {"sku": "cpu", "template": "greet", "upstream": "local"}
    ended = operator.together([[noun, "list", "-o", form] for noun in nouns for form in ("table", "json")])
    for shown, table, listed in zip(nouns.values(), ended[::2], ended[1::2], strict=True):
        assert shown in table.check().out
        assert shown in {one.get("id") or one["cloud"] for one in listed.check().json()}
    sold = {line.split()[0]: line.rstrip() for line in ended[0].out.splitlines()}
    assert sold["cpu"].endswith("  yes")
    assert sold["gpu"].endswith("  not here"), "its cloud is not among the upstreams"


def test_who_stops_waiting_is_told_that_the_job_goes_on(buyer: Sky) -> None:
    process = buyer.begin(*SUBMIT, "--follow", "--", "sh", "-c", "echo up; sleep 600")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=COMMAND_S)
    finally:
        process.kill()
        process.wait(COMMAND_S)
    assert process.returncode == 130
    [job] = re.findall(r"^(job_\w{26}) goes on", err, re.MULTILINE)
    assert buyer.json_of("job", "get", job)["status"] in ("provisioning", "running"), "it goes on"
    buyer("job", "cancel", job).check()


def test_a_template_is_submitted_by_its_name(buyer: Sky) -> None:
    done = buyer("job", "submit", "--template", "greet", "--env", "NAME=you", "--follow").check()
    assert done.out == "hello you\n"
    wrong = buyer("job", "submit", "--template", "greet", "--", "true").check(2)
    assert wrong.err.startswith("error: field_not_overridable: ")


def test_a_key_is_read_from_a_file(buyer: Sky, customer: Customer) -> None:
    file = buyer.folder / "key"
    file.write_text(customer.key + "\n")
    file.chmod(0o644)
    ended = buyer("job", "list", "--key-file", str(file), SKY_API_KEY="").check()
    assert "chmod 600" in ended.err
    file.chmod(stat.S_IRUSR)
    assert "chmod" not in buyer("job", "list", "--key-file", str(file), SKY_API_KEY="").check().err
    assert customer.key not in ended.out + ended.err


REFUSED: list[tuple[tuple[str, ...], int, str]] = [
    (("--sku", "cpuu", "--image", "local", "--max-runtime", "1m", "--", "true"), 2, "unknown_sku"),
    (("--sku", "cpu", "--image", "local", "--", "true"), 2, "missing_max_runtime"),
    (("--sku", "cpu", "--image", "local", "--max-runtime", "1m"), 2, "missing_command"),
    (("--sku", "dear", "--image", "local", "--max-runtime", "2h", "--", "true"), 4, "insufficient_balance"),
    (("--sku", "gpu", "--image", "x", "--max-runtime", "1m", "--", "true"), 1, "upstream_unavailable"),
    (("--sku", "cpu", "--input", "https://x.test/a", "--", "true"), 2, "usage"),
    (("--sku", "cpu", "--env", "=x", "--", "true"), 2, "usage"),
]


def test_a_refusal_says_what_to_do(buyer: Sky) -> None:
    ended = buyer.together([["job", "submit", *words] for words, _, _ in REFUSED])
    for told, (_, code, said) in zip(ended, REFUSED, strict=True):
        assert told.check(code).out == ""
        assert told.err.startswith(f"error: {said}: ")


def test_the_same_key_is_the_same_job(buyer: Sky) -> None:
    one = buyer(*SUBMIT, "--idempotency-key", "k", "--", "true").check().out
    assert buyer(*SUBMIT, "--idempotency-key", "k", "--", "true").check().out == one
    assert (
        buyer(*SUBMIT, "--idempotency-key", "k", "--", "false")
        .check(4)
        .err.startswith("error: idempotency_conflict: ")
    )


def test_files_come_home(buyer: Sky) -> None:
    script = "cd $UNIFY_COMPUTE_ROOT/out; mkdir sub; echo 1 > one; echo 2 > sub/two"
    job = buyer(*SUBMIT, "--output", "/out", "--wait", "--", "sh", "-c", script).check().out.strip()
    assert "/out/sub/two" in buyer("job", "artifacts", job).check().out
    got = buyer("job", "download", job, "--to", "got").check().out.splitlines()
    assert sorted(got) == ["got/out/one", "got/out/sub/two"]
    assert (buyer.folder / "got/out/sub/two").read_text() == "2\n"
    buyer("job", "download", job, "/out/one", "--to", "mine").check()
    assert (buyer.folder / "mine").read_text() == "1\n"
    assert buyer("job", "download", job, "/out/one", "--to", "new/").check().out == "new/one\n"
    near = buyer("job", "download", job, "/out/onee").check(3)
    assert "did you mean `/out/one`?" in near.err


# ── the document, and starting ──────────────────────────────────────────────────────────────────


def test_a_daemon_is_started_to_sell_or_not_to(nobody: Sky) -> None:
    started = nobody("server", "start", "--port", "0", "--no-jobs").check()
    try:
        assert started.out.startswith("started: ")
        assert "local" in nobody("upstream", "list").check().out
        dark = nobody(*SUBMIT, "--", "true", SKY_API_KEY="sk-12345678").check(2)
        assert dark.err.startswith("error: unknown_sku: ")
        dark = nobody("job", "list", SKY_API_KEY="sk-12345678").check(1)
        assert dark.err.startswith("error: not_implemented: ")
        other = nobody("server", "start", "--allow-host-jobs").check(4)
        assert "--allow-host-jobs true" in other.err
        nobody("server", "start", "--no-jobs").check()
    finally:
        nobody("server", "stop").check()


def test_the_document_of_paid_jobs_is_printed(nobody: Sky, operator: Sky) -> None:
    here = nobody("openapi", "jobs").check().json()
    assert here["info"]["title"] == "Skyfleet paid jobs"
    assert here == operator("openapi", "jobs").check().json()


def test_completion_knows_what_is_below(nobody: Sky) -> None:
    script = nobody("completion", "show", "--shell", "bash").check().out
    for word in ("topup", "statement", "revoke", "verify", "artifacts"):
        assert word in script
