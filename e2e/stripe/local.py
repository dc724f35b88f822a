"""localstripe, unmodified but for where it listens: on a free port of this machine alone, which it prints. It keeps
nothing on the disk, and ends with its standard input."""

import asyncio
import sys

from aiohttp import web
from localstripe import resources, server

# It would write all it knows to one file below /tmp, at every change.
resources.store.dump_to_disk = lambda: None


async def main():
    runner = web.AppRunner(server.app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


asyncio.run(main())
