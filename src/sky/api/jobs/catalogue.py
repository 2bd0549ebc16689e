"""What is sold, for anybody to read: SKUs, clouds, templates; and whether the service is there.

Decides: nothing. Never: asks for a key.
Follows: what is listed is what a submit is judged by.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.jobs import show
from sky.api.jobs.route import HEALTH_PATH, PREFIX, JobAsk, reply, route
from sky.wire import jobs as wire

TAG = "catalogue"


@route("GET", f"{PREFIX}/skus", tag=TAG, guarded="nobody", answers=wire.SKUList)
async def list_skus(ask: JobAsk) -> ASGIResponse:
    """List what is sold

    The whole catalogue at once, kinds of machine that are listed and not sold included.
    """
    catalogue = ask.selling.offering().catalogue
    data = tuple(show.sku(sku) for sku in catalogue.skus.values())
    return reply(wire.SKUList(object="list", data=data, note=catalogue.note))


@route("GET", f"{PREFIX}/upstreams", tag=TAG, guarded="nobody", answers=wire.UpstreamList)
async def list_upstreams(ask: JobAsk) -> ASGIResponse:
    """List the clouds behind what is sold

    Each with whether this deployment can use it, in alphabetical order.
    """
    offering = ask.selling.offering()
    data = tuple(
        wire.Upstream(object="compute.upstream", cloud=cloud, enabled=cloud in offering.enabled, skus=skus)
        for cloud, skus in offering.catalogue.upstreams().items()
    )
    return reply(wire.UpstreamList(object="list", data=data))


@route("GET", f"{PREFIX}/templates", tag=TAG, guarded="nobody", answers=wire.TemplateList)
async def list_templates(ask: JobAsk) -> ASGIResponse:
    """List jobs that are written down already

    Those that cannot be used now too, with the reason, in the order of their ids.
    """
    offering = ask.selling.offering()
    templates = [one for _, one in sorted(offering.catalogue.templates.items())]
    data = tuple(show.template(one, offering.unavailable(one)) for one in templates)
    return reply(wire.TemplateList(object="list", data=data))


@route("GET", HEALTH_PATH, tag="meta", guarded="nobody", answers=wire.Health)
async def health(ask: JobAsk) -> ASGIResponse:
    """Say that the service is there, and which build it is"""
    return reply(wire.Health(status="ok", service="compute-api", build=ask.selling.settings.build))


ROUTES = (list_skus, list_upstreams, list_templates, health)
