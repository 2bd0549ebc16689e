"""A paid job from both sides: a seller opens an account, and a customer has a picture computed and pays.

Decides: what each side does, and with what: the operator speaks HTTP, as a billing system would; the customer
has nothing but an address and a key, and uses ``sky.Jobs``. The job draws the Mandelbrot set.
Never: shows the key. Follows: the account is closed in the end; its book stays, and adds up.

The daemon has to let the image ``local`` run commands as processes of its computer:

    SKY_ALLOW_HOST_JOBS=true scripts/with_daemon examples/paid_job.py [--to FOLDER]
"""

from __future__ import annotations

import argparse
import inspect
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

import sky

SKU = "cpu-1x"
PAID_USD = "5"
PATIENCE_S = 5
ROWS = 120
SHADES = " .:-=+*#%@"


def draw(rows: int) -> None:
    """Write the picture below /out, as a graymap. The text of this is what the customer sends."""
    import os
    from pathlib import Path

    columns, steps = rows * 3 // 2, 60
    pixels = bytearray()
    for row in range(rows):
        for column in range(columns):
            point = complex(-2.2 + 3.2 * column / columns, -1.1 + 2.2 * row / rows)
            value, step = 0j, 0
            while abs(value) < 2 and step < steps:
                value, step = value * value + point, step + 1
            pixels.append(255 * step // steps)
        if row % (rows // 4) == 0:
            print(f"row {row} of {rows}", flush=True)
    folder = Path(os.environ["UNIFY_COMPUTE_ROOT"] + "/out")
    (folder / "mandelbrot.pgm").write_bytes(b"P5 %d %d 255\n" % (columns, rows) + pixels)


class Operator:
    """The seller. A daemon of one's own asks for no token; another one takes that in SKY_TOKEN."""

    def __init__(self, url: str) -> None:
        token = os.environ.get("SKY_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=f"{url}/admin/v1", headers=headers, timeout=30)

    def ask(self, method: str, path: str, **body: object) -> dict[str, Any]:
        """Send one request; its answer. What is wrong ends the program, in the daemon's own words."""
        key = {"idempotency-key": secrets.token_hex(16)} if method == "POST" else {}
        try:
            answer = self.http.request(method, path, json=body or None, headers=key)
        except httpx2.TransportError as away:
            sys.exit(
                f"stopped: nobody answers at {self.http.base_url} ({away}): `sky server start` starts one"
            )
        if answer.is_error:
            sys.exit(f"stopped: {method} {path} was refused: {answer.text}")
        return answer.json()

    @contextmanager
    def customer(self) -> Iterator[str]:
        """The key of a new customer, who has paid. The account is closed when the block ends."""
        name = f"example-{secrets.token_hex(4)}"
        account = f"/accounts/{self.ask('POST', '/accounts', name=name)['id']}"
        try:
            self.ask("POST", f"{account}/payments", amount_usd=PAID_USD, payment=f"receipt-{name}")
            yield self.ask("POST", f"{account}/keys")["key"]
        finally:
            self.ask("PATCH", account, change="close")


def buy(jobs: sky.Jobs, to: Path) -> Path:
    """Submit the job, follow it to its end, and fetch the picture."""
    job = jobs.submit(
        sku=SKU,
        image="local",
        command=["python3", "-c", f"{inspect.getsource(draw)}\ndraw({ROWS})"],
        outputs=["/out"],
        max_runtime_seconds=300,
    )
    print(f"{job.id}: ${job.usage.hold_usd} held of ${PAID_USD}")
    for line in job.logs(follow=True):
        print(f"  {line}")
    job.wait(check=True)
    left = jobs.balance().available_usd
    print(f"{job.id}: {job.status}, ${job.usage.settled_cost_usd} charged, ${left} left")
    (picture,) = job.artifacts()
    to.mkdir(parents=True, exist_ok=True)
    return picture.download(to)


def show(picture: Path) -> None:
    """Some of its points, as characters."""
    header, _, pixels = picture.read_bytes().partition(b"\n")
    width, height = map(int, header.split()[1:3])
    print(f"{picture}: {width} by {height} pixels")
    for row in range(0, height, max(1, height // 20)):
        line = pixels[row * width : (row + 1) * width : max(1, width // 60)]
        print("".join(SHADES[shade * (len(SHADES) - 1) // 255] for shade in line).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description="Sell and buy one job.")
    parser.add_argument("--to", type=Path, default=Path("results"), help="where its file goes (results)")
    to: Path = parser.parse_args().to
    with sky.Jobs(patience_s=PATIENCE_S) as anyone:  # prices can be read without a key
        url = anyone.url
        prices = {sku.id: sku.price_usd_per_hour for sku in anyone.skus()}
    if SKU not in prices:
        sys.exit(f"stopped: {SKU} is not sold here, but {', '.join(prices) or 'nothing'}")
    print(f"{SKU} costs ${prices[SKU]} an hour")
    operator = Operator(url)
    with operator.customer() as key, sky.Jobs(url, key) as jobs:
        show(buy(jobs, to))
    book = operator.ask("GET", "/ledger/audit")
    print(f"{book['lines']} lines of the seller's ledger add up: {book['ok']}")


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
