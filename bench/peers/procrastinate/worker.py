"""A worker process: starts and stops when its parent says so, and reports what it handled, and when."""

import asyncio
import json
import sys

from app import CONCURRENCY, WORKERS, app, handled, pool

REPORT_SECONDS = 0.01


def say(report):
    print(json.dumps(report), flush=True)


def report():
    if handled:
        say({"handled": handled})
        handled.clear()


async def report_often():
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        report()


def start():
    settings = {"concurrency": CONCURRENCY, "install_signal_handlers": False}
    workers = [app.run_worker_async(**settings) for _ in range(WORKERS)]
    return [asyncio.create_task(task) for task in [*workers, report_often()]]


async def stop(tasks):
    """A cancelled worker ends what it has begun first."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    report()


async def main():
    connections = pool(WORKERS * (CONCURRENCY + 1))
    async with connections, app.open_async(connections):
        loop = asyncio.get_running_loop()
        tasks = []
        say({"ready": True})
        while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if command == "start":
                tasks = start()
                say({"started": True})
            else:
                await stop(tasks)
                say({"stopped": True})


asyncio.run(main())
