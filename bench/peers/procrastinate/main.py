import asyncio
import json
import sys
from pathlib import Path

import procrastinate
from app import CONCURRENCY, PROCESSES, WORKERS, app, contest, pool
from python_contest import administer, payload
from python_contest import contest as run_contest

FILL_BATCH = 1000
FILLERS = 4
WORKER = str(Path(__file__).with_name("worker.py"))
REPORT_BYTES_MAX = 16 * 1024 * 1024


class Worker:
    """A process of workers."""

    @classmethod
    async def launch(cls):
        pipe = asyncio.subprocess.PIPE
        worker = cls()
        worker.process = await asyncio.create_subprocess_exec(
            sys.executable, WORKER, stdin=pipe, stdout=pipe, limit=REPORT_BYTES_MAX
        )
        await worker.hear("ready")
        return worker

    async def start(self, tally):
        self.say("start")
        await self.hear("started")
        self.listening = asyncio.create_task(self.hear("stopped", tally))

    async def stop(self):
        self.say("stop")
        await self.listening

    async def end(self):
        self.process.stdin.close()
        await self.process.wait()

    def say(self, command):
        self.process.stdin.write(f"{command}\n".encode())

    async def hear(self, answer, tally=None):
        """Counts what is reported until the answer comes."""
        while line := await self.process.stdout.readline():
            report = json.loads(line)
            if "handled" in report:
                tally.starts.update(report["handled"])
                tally.add(len(report["handled"]))
            if answer in report:
                return
        raise RuntimeError("a worker process ended")


class Procrastinate:
    about = {
        "name": "procrastinate",
        "version": procrastinate.__version__,
        "settings": f"{PROCESSES} processes of {WORKERS} workers, concurrency {CONCURRENCY}, "
        "a pool of autocommit connections",
    }

    def __init__(self):
        self.crew = []
        self.pool = None

    async def prepare(self):
        """Connections remember types and plans of the old schema: they go with it."""
        for worker in self.crew:
            await worker.end()
        self.crew = []
        if self.pool is not None:
            await self.pool.close()
        await administer("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        self.pool = pool(FILLERS)
        await self.pool.open()
        app.connector = app.job_manager.connector = procrastinate.PsycopgConnector()
        await app.open_async(self.pool)
        await app.schema_manager.apply_schema_async()

    async def clear(self):
        await administer("TRUNCATE procrastinate_jobs, procrastinate_events, procrastinate_periodic_defers")

    async def enqueue(self, connection, numbers):
        deferrer = contest.configure(connection=connection)
        if len(numbers) == 1:
            await deferrer.defer_async(**payload(numbers[0]))
        else:
            await deferrer.batch_defer_async(*map(payload, numbers))

    async def fill(self, first, count):
        batches = iter(range(first, first + count, FILL_BATCH))

        async def filler():
            for start in batches:
                numbers = range(start, min(start + FILL_BATCH, first + count))
                await contest.batch_defer_async(*map(payload, numbers))

        await asyncio.gather(*(filler() for _ in range(FILLERS)))

    async def ready(self, workload):
        while len(self.crew) < PROCESSES:
            self.crew.append(await Worker.launch())

    async def work(self, tally, workload):
        await asyncio.gather(*(worker.start(tally) for worker in self.crew))

        async def stop():
            await asyncio.gather(*(worker.stop() for worker in self.crew))

        return stop


run_contest(Procrastinate())
