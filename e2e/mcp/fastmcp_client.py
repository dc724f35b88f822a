"""Signs in and calls a tool through FastMCP, unmodified; its browser is what $BROWSER names."""

import asyncio
import os

from fastmcp import Client


async def main():
    organization = os.environ["COPPICE_ORGANIZATION"]
    async with Client(os.environ["MCP_URL"], auth="oauth") as client:
        names = [tool.name for tool in await client.list_tools()]
        assert "list_branches" in names and "create_branch" not in names, names
        result = await client.call_tool("list_projects", {"organizationID": organization})
        assert '"projects"' in result.content[0].text, result
    print("DONE", flush=True)


asyncio.run(main())
