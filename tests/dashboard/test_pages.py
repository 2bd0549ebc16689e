"""The dashboard in a real browser: every page shows what there is and takes none of it for markup, reads on a
phone and to whoever does not see; it moves by itself, and lets in by token."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from tests.dashboard.browser import Browser, Tab
from tests.dashboard.conftest import CANARY, Fleet
from tests.dashboard.layout import Looks
from tests.dashboard.pictures import Pictures
from tests.databases import IN_A_FILE
from tests.jobs.shop import Customer, body
from tests.jobs.test_webhooks import Receiver

from sky import Task
from sky.api.dashboard import PAGES, files

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    "resultTypes": ["violations"],
}
AWAY = "The daemon does not answer. What is shown is from before"
HARMLESS = "!window.hacked && !document.querySelector('main img, main script')"


def broken_rules(tab: Tab) -> list[str]:
    """Which rules of accessibility the page breaks, and where."""
    tab.run(f"window.axe || (0, eval)({json.dumps(AXE)}), 0")
    return tab.run(
        f"axe.run(document, {json.dumps(RULES)}).then((r) => r.violations.map((v) => "
        "`${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary}`).join('; ')}`))"
    )


def sky(fleet: Fleet, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command, on the daemon's computer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKY", "BROWSER"))}
    environment = {**kept, "SKY_HOME": str(fleet.daemon.home), "BROWSER": "echo opened %s", **more}
    command = [sys.executable, "-m", "sky.cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def rows(fleet: Fleet) -> dict[str, int]:
    """How many rows each table of the daemon has."""
    with closing(sqlite3.connect(f"file:{fleet.daemon.home / 'sky.db'}?mode=ro", uri=True)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}


def named_by_kind(fleet: Fleet, page: str) -> str:
    """A page's path, with the kind of each thing in place of its id."""
    for name in ("compute", "task", "failed", "launched", "job", "account", "webhook"):
        page = page.replace(getattr(fleet, name), name.upper())
    return page


def pages(fleet: Fleet) -> list[tuple[str, str]]:
    """Every page, and what it must say."""
    return [
        ("", "its script ended with 3"),
        ("costs", "Had machines for"),
        ("clusters", "first"),
        ("clusters/first", CANARY),
        ("clusters/first/jobs/1", f"printed {CANARY}"),
        ("clusters/nosuch", "There is no cluster nosuch."),
        ("computes", "machines"),
        (f"computes/{fleet.compute}", "Rank 0"),
        ("tasks", "failed"),
        (f"tasks/{fleet.task}", CANARY),
        (f"console?compute={fleet.compute}", "Everything its nodes have printed"),
        (f"events?compute={fleet.compute}", "node.ready"),
        ("requests?show=all", CANARY),
        (f"requests/{fleet.failed}", CANARY),
        (f"requests/{fleet.launched}", "succeeded"),
        ("launch", "Dry run: machine and price"),
        ("jobs", f"what={CANARY}"),
        (f"jobs/{fleet.job}", f"{CANARY}\n— succeeded —"),
        (f"sold/{fleet.job}", "told to whoever holds a key"),
        ("prices", CANARY),
        ("accounts", "they add up"),
        (f"accounts/{fleet.account}", CANARY),
        (f"accounts/{fleet.account}/webhooks/{fleet.webhook}", "Connect call failed"),
        ("users", "sky user create ada"),
        ("settings", "SKY_WEBHOOK_LOOPBACK"),
        ("login", "An admin makes one with"),
    ]


def test_every_page_shows_what_there_is_as_it_is_to_look_and_runs_nothing_of_it(
    tab: Tab, fleet: Fleet
) -> None:
    tab.send("Emulation.setScrollbarsHidden", hidden=True)
    tab.open("jobs")
    tab.says("As a customer sees theirs")
    tab.says(fleet.job[-8:])
    broken = broken_rules(tab)
    tab.run(f"sessionStorage.setItem('sky.key', {fleet.customer.key!r})")
    shown, looks = pages(fleet), Looks()
    assert {page.split("?")[0].split("/")[0] for page, _ in shown} == {"", *PAGES}
    for number, (page, words) in enumerate(shown):
        tab.scheme("dark" if number % 2 else "light")
        if number % 4 == 0:
            tab.open(page)
        else:
            tab.go(page)
        tab.says(words)
        broken += [f"{page}: {rule}" for rule in broken_rules(tab)]
        looks.measure(tab, named_by_kind(fleet, page))
        assert tab.run(HARMLESS), page
        assert tab.errors == [], page
    assert broken == []
    ours = (f"{tab.url}/", "data:")
    assert [url for url in tab.asked if not url.startswith(ours)] == [], "it asks nobody else"
    if os.environ.get("SKY_UPDATE_GOLDEN"):
        looks.write()
    differences = looks.differences()
    assert not differences, "\n".join(differences)


def test_every_page_is_drawn_as_in_the_picture_that_was_accepted(
    tab: Tab, browser: Browser, fleet: Fleet, tmp_path: Path
) -> None:
    pictures = Pictures.of(tab, browser, tmp_path, accept=bool(os.environ.get("SKY_UPDATE_GOLDEN")))
    tab.send("Emulation.setScrollbarsHidden", hidden=True)
    tab.open("login")
    tab.run(f"sessionStorage.setItem('sky.key', {fleet.customer.key!r})")
    for page, words in pages(fleet):
        name = named_by_kind(fleet, page)
        tab.go(page)
        tab.says(words)
        if page == f"computes/{fleet.compute}":
            tab.until("document.querySelectorAll('.gauge .stroke').length", lambda drawn: drawn >= 3)
        for size in ("desk", "phone"):
            pictures.take(tab, name, size)
        if name in ("", "computes/COMPUTE", "login"):
            pictures.take(tab, name, "desk", "dark")
    wrong = pictures.wrong()
    assert not wrong, wrong


@IN_A_FILE
def test_pages_that_look_again_for_a_minute_leave_nothing_behind(tab: Tab, fleet: Fleet) -> None:
    tab.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="const slow = setInterval; window.setInterval = (act, ms) => slow(act, ms / 200);",
    )
    tab.open("login")
    tab.run(f"sessionStorage.setItem('sky.key', {fleet.customer.key!r})")
    before = rows(fleet)
    for page, asked, seconds in (
        ("", "/api/summary", 10),
        ("costs", "/api/costs", 10),
        ("clusters", "/api/clusters", 10),
        ("clusters/first", "/api/clusters/first/jobs", 10),
        ("clusters/first/jobs/1", "/api/clusters/first/jobs", 10),
        ("requests?show=all", "/api/status", 5),
        (f"requests/{fleet.launched}", "/api/get", 3),
        ("computes", "/v1/computes", 10),
        ("jobs", "/compute/v1/usage", 5),
        (f"jobs/{fleet.job}", f"/compute/v1/jobs/{fleet.job}/events", 5),
        ("prices", "/compute/v1/skus", 60),
        ("accounts", "/admin/v1/ledger/audit", 15),
        (f"accounts/{fleet.account}", f"/admin/v1/accounts/{fleet.account}/entries", 15),
        ("users", "/users/tokens", 15),
        ("settings", "/v1/loops", 10),
    ):
        tab.asked.clear()
        tab.go(page)
        looks = 60 // seconds
        tab.until("1", lambda _, path=asked, n=looks: sum(path in url for url in tab.asked) > n)
    grown = {name for name, count in rows(fleet).items() if count > before[name]}
    assert grown <= {"events"}, "what happens to machines goes on; what is looked at leaves nothing"


def test_every_page_says_that_the_daemon_is_away_and_goes_on_when_it_is_back(tab: Tab, fleet: Fleet) -> None:
    tab.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="const late = setTimeout; window.setTimeout = (act, ms) => late(act, ms / 20);",
    )
    tab.open("login")
    tab.run(f"sessionStorage.setItem('sky.key', {fleet.customer.key!r})")
    alone = ("launch", "console", "events", "login")
    for page, words in pages(fleet):
        tab.connected(False)
        tab.go(page)
        if page.partition("?")[0] not in alone:
            tab.says("Waiting for the daemon.")
            tab.says(AWAY)
        tab.connected(True)
        tab.says(words)
        tab.until("document.getElementById('away').textContent === ''")
    assert [error for error in tab.errors if "net::ERR_INTERNET_DISCONNECTED" not in error] == []
    # One that is back and refuses whoever asks is there all the same: it is not asked any more.
    tab.run("sessionStorage.setItem('sky.token', 'sky_nobody')")
    tab.connected(False)
    tab.go("clusters")
    tab.says(AWAY)
    tab.connected(True)
    tab.says("An admin makes one with")
    tab.asked.clear()
    tab.run("new Promise((done) => setTimeout(done, 10 * 2000))")
    assert sum("/api/health" in url for url in tab.asked) <= 1


def test_addresses_run_nothing(tab: Tab) -> None:
    for page in (
        f"clusters/{quote(CANARY, safe='')}",
        f"tasks?state={quote(CANARY)}",
        f"requests/{quote(CANARY, safe='')}",
    ):
        tab.open(page)
        assert tab.run(HARMLESS), page
    tab.open(f"login?next={quote('//elsewhere.example/' + CANARY)}")
    assert tab.run(HARMLESS)


def test_a_page_moves_by_itself_also_after_the_daemon_died(stranger: Tab, fleet: Fleet) -> None:
    tab = stranger
    tab.open("login")
    tab.run(f"sessionStorage.setItem('sky.token', {fleet.daemon.made('moves', 'admin')!r})")
    tab.open("computes/machines")
    tab.says("✓\nlive")
    tab.until("document.querySelectorAll('.gauge').length", lambda count: count >= 3)
    tab.run("window.stays = 1")
    fleet.api.http.patch("/v1/computes/machines", json={"nodes": {"desired": 2}}, headers={"if-match": "*"})
    tab.says("Rank 1")
    fleet.daemon.kill()
    tab.says(AWAY)
    assert "Rank 1" in tab.text(), "what was shown stays"
    fleet.daemon.start()
    tab.until("document.getElementById('away').textContent === ''")
    fleet.api.http.patch("/v1/computes/machines", json={"nodes": {"desired": 1}}, headers={"if-match": "*"})
    tab.until("document.querySelector('main .facts').innerText", lambda text: "1 of 1" in text)
    assert tab.run("window.stays") == 1, "it was not loaded again"


def test_a_task_is_launched_from_the_form_by_keyboard(tab: Tab, fleet: Fleet, tmp_path: Path) -> None:
    tab.open("launch")
    tab.send("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert tab.run("document.activeElement.textContent") == "Skip to the content"
    for name, text in (
        ("cluster", "first"),
        ("cpus", "many"),
        ("run", "echo $GREETING from a form"),
        ("envs", "GREETING=hello"),
    ):
        tab.run(f"document.querySelector('[name={name}]').focus()")
        tab.send("Input.insertText", text=text)
    tab.run("document.querySelector('button.main').click()")
    tab.says('cpus is a number, or one with a + for at least; it is "many"')
    tab.run("document.querySelector('[name=cpus]').value = '1+'")
    tab.press("Dry run: machine and price")
    tab.says("On first, which is there:")
    tab.says("$0.00 an hour as before. Nothing was bought.")
    (tmp_path / "task.yaml").write_text(tab.run("document.getElementById('file').textContent"))
    checked = sky(fleet, "launch", "--dryrun", "-c", "first", str(tmp_path / "task.yaml"))
    assert checked.returncode == 0, checked.stderr
    task = Task.from_yaml(str(tmp_path / "task.yaml")).to_yaml_config()
    assert (task["run"].strip(), task["envs"]) == ("echo $GREETING from a form", {"GREETING": "hello"})
    tab.run("document.querySelector('button.main').click()")
    tab.says("launch on first")
    to_job(tab)
    tab.says("hello from a form")
    tab.run("document.querySelector('nav a').focus()")
    tab.send(
        "Input.dispatchKeyEvent", type="keyDown", key="ArrowDown", code="ArrowDown", windowsVirtualKeyCode=40
    )
    assert tab.run("document.activeElement.textContent") == "Costs"


def test_a_folder_and_an_archive_go_along_with_a_task(tab: Tab, fleet: Fleet, tmp_path: Path) -> None:
    deep = tmp_path / "work" / ("long-" * 12) / ("name-" * 12)
    deep.mkdir(parents=True)
    (deep / "grüße.txt").write_text("from far below\n")
    (tmp_path / "work" / "go").write_text("#!/bin/sh\ncat */*/*.txt\nls -A\necho that is all\n")
    (tmp_path / "work" / ".venv").mkdir()
    (tmp_path / "work" / ".venv" / "left").write_text("behind")
    tab.open("launch")
    choose(tab, "#f-a-folder", tmp_path / "work")
    tab.says("2 files, 62 B; 1 of caches and environments stay behind.")
    sent(tab, "with-folder", "./go")
    tab.says("that is all")
    printed = [line for line in tab.text().splitlines() if line.startswith("(task) ")]
    assert printed == [
        "(task) from far below",
        "(task) go",
        f"(task) {deep.parent.name}",
        "(task) that is all",
    ]
    assert ".venv" not in tab.text()
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as archive:
        archive.add(deep / "grüße.txt", "unpacked")
    tab.open("launch")
    where = tab.run(
        "(() => { const b = document.querySelector('.drop').getBoundingClientRect(); "
        "return [b.x + b.width / 2, b.y + 8]; })()"
    )
    data = {"items": [], "files": [str(tmp_path / "made.tar.gz")], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        tab.send("Input.dispatchDragEvent", type=kind, x=where[0], y=where[1], data=data)
    tab.says("1 file, ")
    sent(tab, "with-folder", "cat unpacked")
    tab.says("from far below")
    fleet.api.do("down", cluster_name="with-folder")


def choose(tab: Tab, selector: str, path: Path) -> None:
    """Choose something in a field for files."""
    root = tab.send("DOM.getDocument")["root"]["nodeId"]
    node = tab.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    tab.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])


def sent(tab: Tab, cluster: str, run: str) -> None:
    """Launch what is in the form, and go on to the job's page."""
    tab.run(f"document.querySelector('[name=cluster]').value = {cluster!r}")
    tab.run(f"document.querySelector('[name=run]').value = {run!r}")
    tab.run("document.querySelector('button.main').click()")
    to_job(tab)


def to_job(tab: Tab) -> None:
    """Go on from the page of a launch to that of its job, once there is one."""
    find = "[...document.querySelectorAll('main a')].find((a) => /^job \\d/.test(a.textContent))"
    tab.until(f"!!{find}")
    tab.run(f"{find}.click()")


def test_what_costs_money_is_asked_about_and_told_to_the_cent_as_the_command_tells_it(
    stranger: Tab, fleet: Fleet
) -> None:
    dear = {"kind": "local", "name": "dear", "config": {"price_per_hour_usd": 3600}}
    assert fleet.api.http.post("/v1/providers", json=dear).status_code < 300
    token = fleet.daemon.made("payer")
    stranger.open("login")
    stranger.run(f"sessionStorage.setItem('sky.token', {token!r})")
    stranger.open("launch")
    stranger.run("document.querySelector('[name=infra]').value = 'dear'")
    for answer in ("Leave it", "Launch it"):
        stranger.run("document.querySelector('[name=cluster]').value = 'paid'")
        stranger.run("document.querySelector('button.main').click()")
        stranger.until("!!document.querySelector('dialog[open]')")
        question = stranger.says(" an hour. Launch it?")
        stranger.press(answer)
        if answer == "Leave it":
            stranger.says("Nothing was bought.")
            assert fleet.api.ask("status", cluster_names=["paid"], all_users=True)["result"] == []
    price = question.partition(" an hour. Launch it?")[0].rpartition(" ")[2]
    stranger.says("succeeded")
    stranger.go("costs")
    stranger.says(price)
    with fleet.daemon.as_(token) as payer:
        down = payer.post("/down", json={"cluster_name": "paid"}).json()["request_id"]
        assert payer.get("/api/get", params={"request_id": down}).json()["status"] == "SUCCEEDED"
    environment = {"SKY_API_ENDPOINT": fleet.daemon.url, "SKY_TOKEN": token}
    [cluster] = json.loads(sky(fleet, "cost-report", "-o", "json", **environment).stdout)
    told = f"${cluster['total_cost']:,.2f}"
    stranger.open("costs")
    tiles = stranger.until(
        "[...document.querySelectorAll('.tile-value')].map((one) => one.textContent)",
        lambda found: found[0] == "$0.00",
    )
    assert tiles == ["$0.00", told, told], "an hour, this month, its clusters"
    assert told in stranger.run("document.querySelector('tbody').innerText")
    with fleet.daemon.as_(token) as payer:
        days = payer.get("/api/summary").json()["days"]
    assert f"${sum(day['cost'] for day in days):,.2f}" == told
    assert fleet.api.http.delete("/v1/providers/dear").status_code < 300


def test_a_cluster_is_told_what_to_do_when_it_is_idle_and_taken_down(tab: Tab, fleet: Fleet) -> None:
    fleet.api.do("launch", task={"run": "true"}, cluster_name="second")
    tab.open("clusters/second")
    tab.says("stays")
    tab.run("document.querySelector('main details').open = true")
    tab.run("document.querySelector('[name=minutes]').value = '45'")
    tab.run("document.querySelector('[name=then]').value = 'down'")
    tab.press("Say so")
    tab.says("taken down after 45 min")
    assert tab.run("document.querySelector('main details').open"), "what was opened stays open"
    for answer in ("Leave it", "Take it down"):
        tab.press("Take down")
        tab.until("!!document.querySelector('dialog[open]')")
        tab.press(answer)
        tab.until("!document.querySelector('dialog')")
    tab.says("There is no cluster second.")
    names = {one["name"] for one in fleet.api.ask("status")["result"]}
    assert "second" not in names


def test_others_come_in_with_a_token_and_do_what_their_role_may(stranger: Tab, fleet: Fleet) -> None:
    viewer = fleet.daemon.made("looks", "viewer")
    stranger.open("clusters/first")
    stranger.until("location.pathname", lambda path: path == "/dashboard/login")
    stranger.shown()
    for given, words in (
        ("sky_wrong", "the token is neither this daemon's nor of the form sky_"),
        (viewer, "first"),
    ):
        stranger.run(f"document.querySelector('input').value = {given!r}")
        stranger.run("document.querySelector('button.main').click()")
        stranger.says(words)
    stranger.until("location.pathname", lambda path: path == "/dashboard/clusters/first")
    stranger.says("looks · viewer")
    stranger.says("looks every few seconds")
    links = stranger.run("[...document.querySelectorAll('nav a')].map((a) => a.textContent)")
    assert "Clusters" in links
    assert not {"Launch", "Computes", "Accounts"} & set(links)
    assert stranger.run("document.querySelectorAll('main button').length") == 0, "a viewer changes nothing"
    stranger.go("computes")
    stranger.says("looks has the role viewer, and this page takes the role admin.")
    stranger.go("")
    stranger.says("yours")
    kept = stranger.run("[localStorage.length, document.cookie, location.href]")
    assert (kept[0], kept[1], viewer in kept[2]) == (0, "", False)
    fleet.api.http.delete("/users/looks")
    stranger.go("clusters")
    stranger.until("location.pathname", lambda path: path == "/dashboard/login")
    assert [url for url in stranger.asked if viewer in url] == []


def test_files_are_told_to_anybody_under_a_strict_policy(fleet: Fleet) -> None:
    with fleet.daemon.as_() as nobody:
        page = nobody.get("/dashboard/clusters/any")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "<script>" not in page.text
        assert " style=" not in page.text
        for name, file in files().items():
            answer = nobody.get(f"/dashboard/static/{name}")
            assert (answer.content, answer.headers["content-type"]) == (file.content, file.media)
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = nobody.get(f"/dashboard/static/{name}", headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        missing = nobody.get("/dashboard/custers")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert "did you mean 'clusters'?" in missing.json()["message"]
        assert nobody.get("/dashboard/static/..%2f..%2fapi%2fdashboard.py").status_code == 404
        assert nobody.get("/api/summary").status_code == 401
        lead = nobody.get("/", headers={"accept": "text/html,*/*"}, follow_redirects=False)
        assert (lead.status_code, lead.headers["location"]) == (307, "/dashboard/")
        assert nobody.get("/", headers={"accept": "application/json"}).status_code == 404


def test_the_summary_is_of_everybody_to_admins_and_of_their_own_to_others(fleet: Fleet) -> None:
    told = fleet.api.http.get("/api/summary", params={"days": 7}).json()
    assert told["everybody"] is True
    assert told["nodes_ready"] >= 2
    assert len(told["days"]) == 7
    assert told["days"][-1]["day"] >= told["month"]
    kinds = {one["kind"] for one in told["failures"]}
    assert kinds == {"job", "request", "task"}
    [job] = [one for one in told["failures"] if one["kind"] == "job"]
    assert (job["cluster"], job["id"], job["name"]) == ("first", "1", CANARY)
    with fleet.daemon.as_(fleet.daemon.made("owns-nothing")) as other:
        own = other.get("/api/summary").json()
    assert (own["everybody"], own["nodes_total"], own["failures"], own["jobs_running"]) == (False, 0, [], 0)
    assert httpx2.get(f"{fleet.daemon.local}/api/summary?days=93", trust_env=False).status_code == 400


def test_the_command_opens_pages_that_there_are(fleet: Fleet) -> None:
    done = sky(fleet, "dashboard", "clusters")
    assert (done.returncode, done.stdout) == (0, f"opened {fleet.daemon.local}/dashboard/clusters\n")
    missing = sky(fleet, "dashboard", "custers")
    assert missing.returncode != 0
    assert "/dashboard/custers" in missing.stderr


def test_an_operator_sees_why_a_webhook_fails_and_sends_again_or_no_more(
    tab: Tab, fleet: Fleet, receiver: Receiver
) -> None:
    customer = Customer(fleet.daemon.owner(), fleet.customer.key, fleet.account)
    mine = f"/webhook_endpoints/{fleet.webhook}"
    tab.open(f"accounts/{fleet.account}")
    tab.run("[...document.querySelectorAll('main a')].find((a) => a.href.includes('/webhooks/')).click()")
    tab.says("What was sent")
    tab.says("job.succeeded")
    customer("PATCH", mine, json={"url": receiver.url})
    tab.press("Send again")
    receiver.until(1)
    tab.says("delivered")
    tab.press("Disable")
    tab.until("!!document.querySelector('dialog[open]')")
    tab.press("Send nothing")
    tab.says("Nothing is sent: the operator ended it.")
    assert customer("GET", mine).json()["disabled_reason"] == "the operator ended it"
    tab.press("Enable")
    tab.says("it is sent to again")
    assert customer("GET", mine).json()["enabled"] is True
    ask = fleet.api.http.get
    assert ask("/admin/v1/webhooks/nosuch/deliveries").status_code == 404
    failed = ask(f"/admin/v1/webhooks/{fleet.webhook}/deliveries", params={"state": "failed", "limit": 1})
    assert failed.json() == {"items": [], "next_cursor": None}
    missing = fleet.api.http.post(f"/admin/v1/webhooks/{fleet.webhook}/deliveries/nosuch/redeliver")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert "whsec_" not in ask(f"/admin/v1/accounts/{fleet.account}/webhooks").text


def test_an_operator_sees_what_was_bought_and_nothing_that_is_in_it(tab: Tab, fleet: Fleet) -> None:
    ask = fleet.api.http.get
    told = ask("/admin/v1/jobs", params={"account": fleet.account, "limit": 1})
    [job] = told.json()["items"]
    assert (job["id"], job["status"], job["sku"]) == (fleet.job, "succeeded", "cpu")
    with fleet.daemon.as_(fleet.customer.key) as customer:
        bought = customer.get(f"/compute/v1/jobs/{fleet.job}").json()
    assert job["charged_usd"] == bought["usage"]["settled_cost_usd"]
    assert CANARY not in told.text
    customer = Customer(fleet.daemon.owner(), fleet.customer.key, fleet.account)
    failed = customer.submit(body(spec__command=["sh", "-c", "exit 7"])).json()["id"]
    assert customer.ended(failed)["status"] == "failed"
    tab.open()
    find = "[...document.querySelectorAll('main a')].find((a) => a.pathname.includes('/sold/'))"
    tab.until(f"!!{find}")
    began = tab.run(
        "new Promise((tell) => { const main = document.querySelector('main'); "
        "addEventListener('popstate', () => tell(main.hasAttribute('aria-busy')), { once: true }); "
        "main.querySelector('a[href$=\"#failed\"]').click(); })"
    )
    assert began is False, "a place in the same page is gone to, and the page is not begun anew"
    tab.run(f"{find}.click()")
    tab.until("location.pathname", lambda path: path == f"/dashboard/sold/{failed}")
    tab.says("the command ended with 7")
    tab.says("It failed")
    asset = tab.run("document.querySelector('script[type=module]').src").replace("app.js", "dom.js")
    ran = tab.run(f"import({asset!r}).then(({{ between }}) => [between(7, 7), between(7, 9)])")
    assert ran == ["< 1 s", "2 s"], "customers are told whole seconds: nothing is said of what is within one"
    assert ask("/admin/v1/jobs", params={"account": "nobody"}).status_code == 404
    with fleet.daemon.as_(fleet.customer.key) as customer:
        assert customer.get("/admin/v1/jobs").status_code == 401
