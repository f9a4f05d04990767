"""What contestants in Python share: the protocol, the writers, the pacing and the figures.

A contestant is an object:
  about                             name, version, settings
  prepare(), clear()                its own tables, made anew or emptied
  enqueue(connection, numbers)      messages in the transaction that the connection has open
  fill(first, count)                messages as fast as it likes
  ready(workload)                   what workers need before they are timed
  work(tally, workload)             starts workers and gives a function back that stops them and returns
                                    when all that they handled is settled in the database
"""

import asyncio
import json
import math
import os
import sys
import time

import psycopg

DATABASE_URL = os.environ.get("CONTEST_DATABASE_URL", "")
PAYLOAD_BYTES = 200
LATENCY_WRITERS = 4
STEADY_WRITERS = 16
WARM_UP_SECONDS = 1
PATIENCE_SECONDS = 120
BUSINESS = "CREATE TABLE business (id bigserial PRIMARY KEY, payload text NOT NULL)"


def now():
    """The same clock in every process of this machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def payload(number):
    """A dictionary that is exactly 200 bytes of compact JSON."""
    bare = len(json.dumps({"n": number, "pad": ""}, separators=(",", ":")))
    return {"n": number, "pad": "x" * (PAYLOAD_BYTES - bare)}


async def administer(*statements):
    """Runs statements on a connection of their own."""
    async with await psycopg.AsyncConnection.connect(DATABASE_URL, autocommit=True) as connection:
        for statement in statements:
            await connection.execute(statement)


class Tally:
    """What was handled: a count, and in `starts` when the handler of each message started."""

    def __init__(self):
        self.handled = 0
        self.starts = {}
        self._changed = asyncio.Event()

    def add(self, count):
        self.handled += count
        self._changed.set()

    async def reach(self, goal):
        """Returns when so many were handled; raises when none was for two minutes."""
        while self.handled < goal:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), PATIENCE_SECONDS)
            except TimeoutError:
                raise RuntimeError(f"only {self.handled} of {goal} messages were handled") from None


def contest(contestant):
    """Answers commands until stdin ends."""
    asyncio.run(_contest(Contest(contestant)))


async def _contest(contest):
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if not line.strip():
            continue
        try:
            answer = await contest.obey(json.loads(line))
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


class Contest:
    def __init__(self, contestant):
        self.contestant = contestant
        self._next = 0

    async def obey(self, command):
        action = command.pop("do")
        commands = {
            "hello": self.hello,
            "prepare": self.prepare,
            "clear": self.clear,
            "enqueue": self.enqueue,
            "fill": self.fill,
            "drain": self.drain,
            "latency": self.latency,
            "steady": self.steady,
        }
        return await commands[action](**command)

    async def hello(self):
        return {"language": "python", **self.contestant.about}

    async def prepare(self):
        await self.contestant.prepare()
        await administer("DROP TABLE IF EXISTS business", BUSINESS)
        return {}

    async def clear(self):
        await administer("TRUNCATE business")
        await self.contestant.clear()
        return {}

    async def enqueue(self, writers, batch, count):
        first = self._take(count)
        batches = iter(range(first, first + count, batch))

        async def write(connection):
            for start in batches:
                await self._transact(connection, range(start, min(start + batch, first + count)))

        async def write_all(connections):
            started = now()
            await asyncio.gather(*map(write, connections))
            return {"seconds": now() - started}

        return await with_connections(writers, write_all)

    async def fill(self, count):
        first = self._take(count)
        started = now()
        await self.contestant.fill(first, count)
        return {"seconds": now() - started}

    async def drain(self, count):
        """Workers may handle a few more than were asked for before they stop; those are not given away as free."""
        await self.contestant.ready("drain")
        tally = Tally()
        started = now()
        stop = await self.contestant.work(tally, "drain")
        try:
            await tally.reach(count)
        finally:
            await stop()
            seconds = now() - started
        return {"seconds": seconds * count / tally.handled}

    async def latency(self, rate, seconds, writers=LATENCY_WRITERS):
        warm_up = self._next + int(rate * WARM_UP_SECONDS)
        commits = {}
        tally = Tally()

        def written(number):
            commits[number] = now()

        async def write_all(connections):
            await self._paced(connections, rate, seconds + WARM_UP_SECONDS, written)
            await tally.reach(len(commits))

        await self._working(tally, "latency", writers, write_all)
        return figures([tally.starts[number] - at for number, at in commits.items() if number >= warm_up])

    async def steady(self, rate, seconds, writers=STEADY_WRITERS):
        numbers = []
        tally = Tally()

        async def write_all(connections):
            writing = asyncio.create_task(self._paced(connections, rate, seconds, numbers.append))
            await asyncio.sleep(seconds)
            written, delivered = len(numbers), tally.handled
            await writing
            backlog = max(0, written - delivered)
            return {"written": written, "delivered": delivered, "backlog": backlog, "wanted": int(rate * seconds)}

        return await self._working(tally, "steady", writers, write_all)

    async def _working(self, tally, workload, writers, use):
        await self.contestant.ready(workload)
        stop = await self.contestant.work(tally, workload)
        try:
            return await with_connections(writers, use)
        finally:
            await stop()

    async def _paced(self, connections, rate, seconds, written):
        """Open loop: each write is due at its own time and starts then, or as soon as a connection is free."""
        count = int(rate * seconds)
        first = self._take(count)
        indexes = iter(range(count))
        started = now()

        async def writer(connection):
            for index in indexes:
                wait = started + index / rate - now()
                if wait > 0:
                    await asyncio.sleep(wait)
                if now() >= started + seconds:
                    return
                await self._transact(connection, [first + index])
                written(first + index)

        await asyncio.gather(*map(writer, connections))

    async def _transact(self, connection, numbers):
        async with connection.transaction():
            await connection.execute("INSERT INTO business (payload) VALUES (%s)", ["an order of two books"])
            await self.contestant.enqueue(connection, numbers)

    def _take(self, count):
        """Numbers are never used twice, so that what an earlier command left is not taken for this one's."""
        first = self._next
        self._next += count
        return first


async def with_connections(count, use):
    connect = psycopg.AsyncConnection.connect
    connections = await asyncio.gather(*(connect(DATABASE_URL, autocommit=True) for _ in range(count)))
    try:
        return await use(connections)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


def figures(latencies):
    if not latencies:
        raise RuntimeError("the writers are too slow for this rate: nothing came after the warm-up")
    ordered = sorted(latencies)

    def at(share):
        return ordered[math.ceil(share * len(ordered)) - 1] * 1_000_000

    return {"p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1), "count": len(ordered)}
