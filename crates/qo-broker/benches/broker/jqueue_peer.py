"""jqueue under the load of the scenario `json`: so many callers, each of which enqueues, dequeues and acknowledges.

Prints one line of JSON: operations, seconds, CPU seconds, writes.
"""

import asyncio
import json
import pathlib
import resource
import sys
import time

from jqueue import BrokerQueue, LocalFileSystemStorage


class CountingStorage:
    """Counts the writes that were made."""

    def __init__(self, inner):
        self.inner = inner
        self.writes = 0

    async def read(self):
        return await self.inner.read()

    async def write(self, content, if_match=None):
        etag = await self.inner.write(content, if_match)
        self.writes += 1
        return etag


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def caller(queue, payload, until, counted):
    while time.monotonic() < until:
        await queue.enqueue("noop", payload)
        jobs = await queue.dequeue("noop")
        counted[0] += 2
        for job in jobs:
            await queue.ack(job.id)
            counted[0] += 1


async def main(path, callers, depth, seconds, input_bytes):
    payload = b"x" * input_bytes
    storage = CountingStorage(LocalFileSystemStorage(path))
    async with BrokerQueue(storage) as queue:
        await asyncio.gather(*(queue.enqueue("noop", payload) for _ in range(depth)))
        counted = [0]
        writes, cpu, started = storage.writes, cpu_seconds(), time.monotonic()
        until = started + seconds
        await asyncio.gather(*(caller(queue, payload, until, counted) for _ in range(callers)))
        result = {
            "operations": counted[0],
            "seconds": time.monotonic() - started,
            "cpu_seconds": cpu_seconds() - cpu,
            "writes": storage.writes - writes,
            "object_bytes": pathlib.Path(path).stat().st_size,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
