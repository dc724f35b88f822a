// Calls a tool through `mcp-remote`, unmodified: what clients start that speak with local servers only. It signs
// in, and says on its standard error where a person has to go.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { MCP_URL: url, COPPICE_ORGANIZATION: organizationID } = process.env;

const client = new Client({ name: 'coppice-story', version: '1.0.0' });
const transport = new StdioClientTransport({
  command: process.execPath,
  args: ['node_modules/mcp-remote/dist/proxy.js', url],
  env: process.env,
  stderr: 'inherit',
});
// It answers nothing before somebody has signed in.
await client.connect(transport, { timeout: 180_000 });
const { tools } = await client.listTools();
assert(tools.some(({ name }) => name === 'list_branches'));
assert(!tools.some(({ name }) => name === 'create_branch'));
const { content } = await client.callTool({ name: 'list_projects', arguments: { organizationID } });
assert.match(content[0].text, /"projects"/);
await client.close();
console.log('DONE');
