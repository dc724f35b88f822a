"""Signs in and calls a tool through the protocol's official library for Python, unmodified. A line
`VISIT <address>` asks whoever runs this to do what a person does in a browser; the answer is the address
it ended at."""

import asyncio
import os
import sys
from urllib.parse import parse_qs, urlsplit

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken


class InMemory(TokenStorage):
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull):
        self.client = client_info


async def visit(address):
    print(f"VISIT {address}", flush=True)


async def ended_at():
    query = parse_qs(urlsplit(sys.stdin.readline().strip()).query)
    first = {name: values[0] for name, values in query.items()}
    return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))


async def main():
    url = os.environ["MCP_URL"]
    metadata = OAuthClientMetadata(
        client_name="The official client", redirect_uris=["http://127.0.0.1:9/callback"]
    )
    auth = OAuthClientProvider(url, metadata, InMemory(), visit, ended_at)
    async with create_mcp_http_client(auth=auth) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert "list_branches" in names and "create_branch" not in names, names
            arguments = {"organizationID": os.environ["COPPICE_ORGANIZATION"]}
            result = await client.call_tool("list_projects", arguments)
            assert '"projects"' in result.content[0].text, result
    print("DONE", flush=True)


asyncio.run(main())
