"""``sky dashboard``: the pages of the server, in a browser.

Decides: which page is opened, and that its address is printed where no browser is.
Never: serves a page. Follows: the address stands alone on standard output, so a script can use it.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import Output, noun, only
from sky.client import sdk

PATH = "/dashboard"


@only("dashboard", "sky dashboard", "sky dashboard clusters", "sky dashboard --print-url")
def dashboard(
    page: Annotated[str | None, Parameter(name="PAGE", help="Which page, such as clusters.")] = None,
    /,
    *,
    print_url: Annotated[bool, Parameter(negative=(), help="Print its address, and open nothing.")] = False,
    output_: Output = "table",
) -> int:
    """Open the dashboard in a browser."""
    if not print_url and output_ != "json":
        sdk.dashboard(page)
        return 0
    url = f"{sdk.api_info()['endpoint']}{PATH}{'/' + page.strip('/') if page else ''}"
    if output_ == "json":
        output.json({"url": url})
    else:
        output.say(url)
    return 0


app = noun("dashboard")
