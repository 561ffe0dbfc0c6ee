"""Where one signs in for a server: its own metadata and its authorization server's.

Decided here: which documents are fetched, in which order, and what stands in for one that is missing. Not here: what the documents mean and
where they may be (`steps`), what may be fetched (`fetching`), and signing in (`flow`).

Spec: 2026-07-28 basic/authorization/authorization-server-discovery
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from outrider.client.auth.steps import (
    Bearer,
    ResourceMetadata,
    ServerMetadata,
    canonical_url,
    choose_issuer,
    parse_bearer,
    read_resource_metadata,
    read_server_metadata,
    require_secure,
    resource_metadata_urls,
    server_metadata_urls,
)
from outrider.errors import SignInFailed
from outrider.redaction import show_url

if TYPE_CHECKING:
    from outrider.client.auth.fetching import Fetcher

__all__ = ["Plan", "fetcher_for", "look_up", "look_up_with", "resource_metadata"]


class Plan(Struct, frozen=True):
    """What was found out about a protected server before anybody signs in.

    Attributes:
        challenge: what the server's challenge says.
        resource: its metadata as a resource.
        server: the authorization server's.
    """

    challenge: Bearer
    resource: ResourceMetadata
    server: ServerMetadata


async def look_up(url: str, header: str = "", *, bound: str = "", known: str = "") -> Plan:
    """Find out where one signs in for the MCP server at `url`.

    Args:
        url: the MCP server.
        header: the `WWW-Authenticate` header of its refusal, or "".
        bound: the issuer that our client is registered with beforehand, or "".
        known: the issuer that was used last, or "".

    Raises:
        SignInFailed: the metadata is missing, does not fit together or points where it must not.
        TransportError: it cannot be fetched.
    """
    async with fetcher_for(url) as fetcher:
        return await look_up_with(fetcher, url, header, bound, known)


async def look_up_with(fetcher: Fetcher, url: str, header: str, bound: str, known: str) -> Plan:
    """See `look_up`."""
    challenge = parse_bearer(header)
    resource = await resource_metadata(fetcher, url, challenge)
    if resource is None:
        # Servers of 2025-03-26 were their own authorization servers; later ones must have said so.
        origin = "/".join(canonical_url(url).split("/")[:3])
        resource = ResourceMetadata(canonical_url(url), (bound or origin,))
    issuer = choose_issuer(resource.authorization_servers, bound=bound, known=known)
    return Plan(challenge, resource, await _server_metadata(fetcher, issuer))


async def resource_metadata(fetcher: Fetcher, url: str, challenge: Bearer) -> ResourceMetadata | None:
    """The metadata of the MCP server at `url` as a resource, or None if it has none.

    Raises:
        SignInFailed: there is none where the challenge says it is, or it does not fit `url`.
    """
    for place in resource_metadata_urls(url, challenge):
        answer = await fetcher.get(place, "the protected-resource metadata")
        if answer.status == 200 and answer.document:
            return read_resource_metadata(answer.document, url)
        if challenge.resource_metadata:
            raise SignInFailed(
                f"there is no protected-resource metadata at {show_url(place)} ({answer.status}), where the server says it is"
            )
    return None


async def _server_metadata(fetcher: Fetcher, issuer: str) -> ServerMetadata:
    require_secure(issuer, "the authorization server")
    for place in server_metadata_urls(issuer):
        answer = await fetcher.get(place, "the authorization server's metadata")
        if answer.status == 200 and answer.document:
            return read_server_metadata(answer.document, issuer)
    raise SignInFailed(
        f"no authorization server's metadata was found for {show_url(issuer)}",
        hint="the server may want a fixed token: give it with --header 'Authorization: Bearer …'",
    )


def fetcher_for(url: str) -> Fetcher:
    """A fetcher; the HTTP stack is loaded when something is fetched, not when a stored token is only used."""
    from outrider.client.auth.fetching import Fetcher

    return Fetcher(url)
