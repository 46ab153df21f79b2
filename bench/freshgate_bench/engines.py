"""Freshgate's memory, and what a user would pick instead, behind one small interface.

All hold the same records and keep an asker of one region to that region. The others are handed analysed terms, joined
by spaces, so that all index the same tokens; each is set up as its own documentation advises for speed, and none of
them is asked to explain itself.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import asyncpg
import tantivy
from freshgate_world import allow, configuration, entitlements, group, person

from freshgate_bench.corpus import ANALYSER, REGIONS, Entry, Question
from freshgate_crds.compiled import Condition, Operator
from freshgate_service.domain import Asker, Scored
from freshgate_service.entitle import border
from freshgate_service.memory import Memory

LIMIT = 10
TITLE_WEIGHT = 3.0
REGION = REGIONS[0]
ASKER = person("ana", "support")
TEAMS = 60
"""Groups whose slices all differ: each lacks one account, or a few, of the region."""


class Engine(Protocol):
    name: str

    def search(self, question: Question) -> Sequence[object]:
        """The best LIMIT that the asker may see, with their scores."""

    def numbers(self, question: Question) -> list[int]:
        """Of what the search finds."""

    def change(self, record: Entry) -> None:
        """Puts another text in a record's place, so that the next search sees it."""

    def close(self) -> None: ...


class Freshgate:
    """Entitle, score and explain; the check at the border stands apart."""

    name = "freshgate"

    def __init__(self, records: Iterable[Entry]) -> None:
        policies = (allow("support", group("support"), region=REGION), *map(_team, range(TEAMS)))
        self.memory = Memory(configuration(entitlements=entitlements(*policies)))
        self._changes = 0
        for record in records:
            self.change(record)

    def search(self, question: Question, asker: Asker = ASKER) -> list[Scored]:
        return self.memory.top(self.memory.slice(asker, None), question.text, LIMIT)

    def numbers(self, question: Question) -> list[int]:
        return [int(one.key.record_id) for one in self.search(question)]

    def check(self, found: Sequence[Scored], asker: Asker = ASKER) -> None:
        accesses = (self.memory.objects[one.key].access for one in found)
        border.check(asker, accesses, self.memory.config.entitlements)

    def change(self, record: Entry) -> None:
        self._changes += 1
        self.memory.apply(record.object(self._changes))

    def close(self) -> None:
        """There is nothing to let go of."""


def member(team: int) -> Asker:
    return person(f"member of {team}", f"team-{team}")


def _team(number: int) -> Any:
    base = allow(f"team-{number}", group(f"team-{number}"), region=REGION)
    without = Condition(attribute="account", operator=Operator.NOT_IN, values=(str(number % 50), str(number // 50)))
    rule = base.rules[0].model_copy(update={"where": (*base.rules[0].where, without)})
    return base.model_copy(update={"rules": (rule,)})


class Fts5:
    """SQLite in memory. The entitlement is a column of the index itself: faster here than a filter on rows found."""

    name = "fts5"

    def __init__(self, records: Iterable[Entry]) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE records USING fts5(title, body, region)")
        self._db.executemany("INSERT INTO records (rowid, title, body, region) VALUES (?, ?, ?, ?)", map(_row, records))
        self._db.execute("INSERT INTO records (records) VALUES ('optimize')")
        self._db.commit()

    def search(self, question: Question) -> list[tuple[int, float]]:
        words = " OR ".join(f'"{term}"' for term in question.terms)
        return self._db.execute(
            f"SELECT rowid, rank FROM records WHERE records MATCH ? AND rank MATCH 'bm25({TITLE_WEIGHT}, 1.0, 0.0)'"
            f" ORDER BY rank LIMIT {LIMIT}",
            (f"({{title body}} : ({words})) AND region : {REGION}",),
        ).fetchall()

    def numbers(self, question: Question) -> list[int]:
        return [number for number, _ in self.search(question)]

    def change(self, record: Entry) -> None:
        number, *fields = _row(record)
        self._db.execute("UPDATE records SET title = ?, body = ?, region = ? WHERE rowid = ?", (*fields, number))
        self._db.commit()

    def close(self) -> None:
        self._db.close()


class Tantivy:
    """An index in memory, merged into one segment. The query is put together from terms, which is faster than parsing
    one, and the filter adds nothing to the score."""

    name = "tantivy"

    def __init__(self, records: Iterable[Entry]) -> None:
        builder = tantivy.SchemaBuilder()
        for field in ("title", "body"):
            builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
        builder.add_text_field("region", tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("number", fast=True, indexed=True)
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema)
        writer: Any = self._index.writer(heap_size=200_000_000, num_threads=1)
        for record in records:
            writer.add_document(_document(record))
        writer.commit()
        writer.wait_merging_threads()
        self._writer: Any = None
        self._look()

    def search(self, question: Question) -> list[tuple[int, float]]:
        query, schema, occur = tantivy.Query, self._schema, tantivy.Occur
        words = [
            (occur.Should, query.boost_query(query.term_query(schema, field, term), weight))
            for term in question.terms
            for field, weight in (("title", TITLE_WEIGHT), ("body", 1.0))
        ]
        entitled = query.const_score_query(query.term_query(schema, "region", REGION), 0.0)
        asked = query.boolean_query([(occur.Must, query.boolean_query(words)), (occur.Must, entitled)])
        hits = self._searcher.search(asked, LIMIT, count=False).hits
        numbers = self._searcher.fast_field_values("number", [address for _, address in hits])
        return list(zip(numbers, (score for score, _ in hits), strict=True))

    def numbers(self, question: Question) -> list[int]:
        return [number for number, _ in self.search(question)]

    def change(self, record: Entry) -> None:
        if self._writer is None:
            self._writer = self._index.writer(heap_size=50_000_000, num_threads=1)
        self._writer.delete_documents_by_query(tantivy.Query.term_query(self._schema, "number", record.number))
        self._writer.add_document(_document(record))
        self._writer.commit()
        self._look()

    def close(self) -> None:
        self._writer = None

    def _look(self) -> None:
        self._index.reload()
        self._searcher: Any = self._index.searcher()


class PostgresRls:
    """Full text with row-level security, asked through a prepared statement on a local socket."""

    name = "postgres"

    def __init__(self, records: Iterable[Entry], dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._open(dsn, list(map(_row, records))))

    def search(self, question: Question) -> list[Any]:
        found: list[Any] = self._runner.run(self._search.fetch(" | ".join(f"'{term}'" for term in question.terms)))
        return found

    def numbers(self, question: Question) -> list[int]:
        return [number for number, _ in self.search(question)]

    def change(self, record: Entry) -> None:
        number, title, body, region = _row(record)
        self._runner.run(self._owner.execute(_UPDATE, number, title, body, region))

    def close(self) -> None:
        with suppress(OSError):
            self._runner.run(self._close())
        self._runner.close()

    async def _open(self, dsn: str, rows: Sequence[tuple[int, str, str, str]]) -> None:
        self._owner = await asyncpg.connect(dsn)
        await self._owner.execute(_TABLE)
        await self._owner.copy_records_to_table("records", records=rows, columns=["number", "title", "body", "region"])
        await self._owner.execute("CREATE INDEX ON records USING gin (words); CREATE INDEX ON records (region)")
        await self._owner.execute("VACUUM ANALYZE records")
        self._asker = await asyncpg.connect(dsn)
        await self._asker.execute(f"SET ROLE bench_asker; SET bench.region = '{REGION}'")
        self._search = await self._asker.prepare(_SEARCH)

    async def _close(self) -> None:
        await self._asker.close()
        await self._owner.execute("DROP TABLE records")
        await self._owner.close()


_TABLE = """
DROP TABLE IF EXISTS records;
DO $$ BEGIN CREATE ROLE bench_asker; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
CREATE TABLE records (
    number integer PRIMARY KEY,
    title text NOT NULL,
    body text NOT NULL,
    region text NOT NULL,
    words tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', body), 'D')
    ) STORED
);
ALTER TABLE records ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_region ON records FOR SELECT USING (region = current_setting('bench.region'));
GRANT SELECT ON records TO bench_asker;
"""

_SEARCH = f"""
SELECT number, ts_rank('{{0.33, 0, 0, 1}}', words, asked) AS score
FROM records, to_tsquery('simple', $1) AS asked
WHERE words @@ asked ORDER BY score DESC, number LIMIT {LIMIT}"""

_UPDATE = "UPDATE records SET title = $2, body = $3, region = $4 WHERE number = $1"


def _terms(text: str) -> str:
    return " ".join(ANALYSER.terms(text))


def _row(record: Entry) -> tuple[int, str, str, str]:
    return record.number, _terms(record.title), _terms(record.body), record.region


def _document(record: Entry) -> Any:
    number, title, body, region = _row(record)
    return tantivy.Document(title=title, body=body, region=region, number=number)
