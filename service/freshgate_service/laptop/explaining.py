"""`freshgate explain`: why each object surfaces for an asker, and why others that match do not.

For the platform team, at a terminal that can read the manifests and the store anyway. It asks no source and changes
nothing, and the service has no route that tells any of this.
"""

from collections.abc import Iterator

import click
from multidict import CIMultiDict, CIMultiDictProxy

from freshgate_service.domain import Asker, MemoryObject, Scored
from freshgate_service.entitle import Decision, why
from freshgate_service.laptop.asking import printable
from freshgate_service.laptop.publisher import ManifestPublisher, Place
from freshgate_service.laptop.serving import laptop_options, store_for
from freshgate_service.memory import Memory
from freshgate_service.published import Published
from freshgate_service.runtime import store_of
from freshgate_service.score.analyse import Analyser
from freshgate_service.serve.auth import ON_BEHALF_OF, Verifier
from freshgate_service.store import Store

OTHERS = 10
"""How many objects are shown that match and are not the asker's."""


async def explain_query(place: Place, token: str, on_behalf_of: str | None, query: str) -> None:
    async with store_for(place) as dsn:
        publisher = ManifestPublisher(place, dsn, misses_secrets=False)
        published = publisher.current()
        for refusal in publisher.refusals:
            click.echo(f"refused: {refusal}", err=True)
        asker = _asker(published, token, on_behalf_of)
        memory = await _remembered(published)
        for line in explanation(memory, asker, query):
            click.echo(printable(line))


def explanation(memory: Memory, asker: Asker, query: str) -> Iterator[str]:
    """What surfaces, as the service would score it; then what matches and does not surface."""
    scored = memory.top(memory.slice(asker, None), query, memory.config.ranking.limit)
    yield f"{len(scored)} of {len(memory.objects)} objects surface for {_names(asker)}:"
    for one in scored:
        yield from _surfaced(one, why(asker, memory.objects[one.key].access, memory.config.entitlements))
    others = [(found, decision) for found, decision in _matching(memory, asker, query) if not decision.entitled]
    if others:
        yield ""
        yield f"{len(others)} more match and are not theirs to see{', among them' if len(others) > OTHERS else ''}:"
    for found, decision in others[:OTHERS]:
        yield f"  {found.key.text}"
        yield from _grounds(decision)


def _surfaced(one: Scored, decision: Decision) -> Iterator[str]:
    yield f"  {one.key.text}  {one.score:.3f}"
    for match in one.matched:
        yield f"    {match.score:.3f}  “{match.term}” in the {match.field}"
    yield from _grounds(decision)


def _grounds(decision: Decision) -> Iterator[str]:
    for refused in decision.refused:
        yield f"    denied to everybody: {refused} was refused and could deny anything"
    for grounds in decision.grounds:
        name = grounds.principal.name.name
        if grounds.denied_by:
            yield f"    {name}: denied by {', '.join(grounds.denied_by)}"
        elif grounds.allowed_by:
            yield f"    {name}: allowed by {', '.join(grounds.allowed_by)}"
        else:
            yield f"    {name}: no policy allows it"


def _matching(memory: Memory, asker: Asker, query: str) -> Iterator[tuple[MemoryObject, Decision]]:
    analyser = Analyser(memory.config.ranking.language)
    wanted = set(analyser.query_terms(query))
    for key in sorted(memory.objects):
        found = memory.objects[key]
        if wanted & {*analyser.terms(found.title), *analyser.terms(found.summary)}:
            yield found, why(asker, found.access, memory.config.entitlements)


def _asker(published: Published, token: str, on_behalf_of: str | None) -> Asker:
    headers = CIMultiDict({"Authorization": f"Bearer {token}"})
    if on_behalf_of is not None:
        headers[ON_BEHALF_OF] = on_behalf_of
    return Verifier(published.config.issuers).asker(CIMultiDictProxy(headers))


def _names(asker: Asker) -> str:
    return " for ".join(principal.name.name for principal in asker.everyone)


async def _remembered(published: Published) -> Memory:
    memory = Memory(published.config)
    store: Store = await store_of(published, holder=laptop_options().holder)
    try:
        objects, _ = await store.load()
    finally:
        await store.close()
    for remembered in objects:
        memory.apply(remembered)
    return memory
