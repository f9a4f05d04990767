"""The application: one task, and how its workers are set up."""

import sys
from pathlib import Path

import procrastinate
import psycopg_pool

sys.path.append(str(Path(__file__).resolve().parent.parent))

from python_contest import DATABASE_URL, now

PROCESSES = 2
WORKERS = 4
CONCURRENCY = 5

app = procrastinate.App(connector=procrastinate.PsycopgConnector())
handled = []


@app.task(name="contest")
async def contest(n, pad):
    handled.append((n, now()))


def pool(size):
    """The library takes a pool of ours: a statement each, without BEGIN, COMMIT and a check of the connection."""

    async def configure(connection):
        await connection.set_autocommit(True)

    return psycopg_pool.AsyncConnectionPool(
        DATABASE_URL, min_size=size, max_size=size, configure=configure, open=False
    )
