// The official library for TypeScript, unmodified: finds out where to sign in, registers, sends a person there, and
// uses tools. MCP_URL says where and COPPICE_ORGANIZATION for whom; where the person ended is read from the input.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { MCP_URL: url, COPPICE_ORGANIZATION: organizationID } = process.env;
const redirectUrl = 'http://127.0.0.1:9/';

// Keeps in memory what the library wants kept.
const kept = {};
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: 'official', redirect_uris: [redirectUrl], token_endpoint_auth_method: 'none' },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  redirectToAuthorization: (address) => console.log(`VISIT ${address}`),
};

function connect() {
  const client = new Client({ name: 'official', version: '1.0.0' });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  return { client, transport, connected: client.connect(transport) };
}

const first = connect();
await assert.rejects(first.connected, UnauthorizedError);
const input = createInterface({ input: process.stdin });
const [ended] = await once(input, 'line');
input.close();
await first.transport.finishAuth(new URL(ended).searchParams.get('code'));

const { client, connected } = connect();
await connected;
const names = (await client.listTools()).tools.map(({ name }) => name);
assert(names.includes('list_branches'), names);
assert(!names.includes('create_branch'), 'it was allowed to read only');
const projects = await client.callTool({ name: 'list_projects', arguments: { organizationID } });
assert(!projects.isError, projects.content[0].text);
await client.close();
console.log('DONE');
