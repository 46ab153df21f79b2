"""Northwind, as it came: its dump stands beside a checkout and is no part of it."""

from pathlib import Path

import asyncpg

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT.parent / "shared" / "data" / "northwind" / "northwind.sql"
MANIFESTS = ROOT / "tests" / "northwind" / "manifests"


async def load(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(DUMP.read_text("utf-8"))
    finally:
        await connection.close()
