// Runs every operation that a server documents through the published client, and holds every
// answer against the client's own schemas. COPPICE_URL and COPPICE_API_KEY say where and as whom.
import assert from 'node:assert/strict';
import { build } from 'esbuild';

// The client is published as TypeScript, which Node does not read.
const bundle = await build({
  stdin: { contents: "export * from '@xata.io/api'", resolveDir: new URL('.', import.meta.url).pathname },
  bundle: true,
  format: 'esm',
  platform: 'node',
  write: false
});
const code = Buffer.from(bundle.outputFiles[0].contents).toString('base64');
const { Schemas, XataApi } = await import(`data:text/javascript;base64,${code}`);

const { COPPICE_URL: baseUrl, COPPICE_API_KEY: token } = process.env;
const { api } = new XataApi({ baseUrl, token, retry: false });
const stranger = new XataApi({ baseUrl, token: 'pku_nonsense', retry: false }).api;

// The stack names the bundle, which is a page of base64.
process.on('uncaughtException', (error) => {
  console.error(`${error.message} ${error.status ?? ''} ${JSON.stringify(error.body) ?? ''}`);
  process.exitCode = 1;
});

/** Operations of ours that the client does not have. */
const OURS = ['getCredential', 'getUser', 'updateUser', 'getBranchActivity', 'getBranchHistory', 'getProjectTree', 'setOrganizationMemberRole', 'listAuditLog', 'getUsage', 'listBudgets', 'setBudget', 'deleteBudget', 'getBillingInvoice', 'listEvents', 'listWebhooks', 'createWebhook', 'getWebhook', 'updateWebhook', 'deleteWebhook', 'rotateWebhook', 'listWebhookDeliveries', 'resendWebhookDelivery', 'listOrganizationRoles', 'listTrash', 'emptyTrash', 'purgeBranch', 'undeleteBranch', 'resetBranch', 'upgradeBranch', 'promoteBranch', 'detachBranch', 'queryBranch', 'diffBranches', 'executeOnBranch'];

/** Need somebody else: the client is called here as the only person there is. */
const NEED_ANOTHER_PERSON = ['removeOrganizationMember', 'acceptInvitation'];

/** Need somebody who charges: without, there is nothing to be asked for. */
const NEED_PRICES = ['getBillingUpcomingInvoice', 'createBillingCheckoutSession', 'createBillingPaymentMethodSession'];

/** Need a GitHub App: without, nothing can be linked. */
const NEED_GITHUB = ['createGithubAppInstallation', 'updateGithubAppInstallation', 'createGithubRepository', 'updateGithubRepository', 'deleteGithubRepository'];

const TAGS = ['organizations', 'marketplace', 'billing', 'apiKeys', 'projects', 'branches', 'githubApp', 'vercel', 'mcp', 'projectsWebhooks', 'webhooks'];
const called = new Set();

function method(client, id) {
  const tag = TAGS.find((tag) => client[tag][id] !== undefined);
  assert(tag, `the client has no ${id}`);
  return client[tag][id];
}

function hold(id, schema, value) {
  const said = JSON.stringify(value);
  assert(Schemas[schema], `the client has no ${schema}`);
  const parsed = Schemas[schema].safeParse(value);
  assert(parsed.success, `${id} does not fit ${schema}: ${parsed.error?.message}\n${said}`);
}

/** Calls an operation; its answer fits the schema of its success. */
async function call(id, params = {}) {
  const parts = { pathParams: params.path, queryParams: params.query, body: params.body };
  if (params.body) hold(id, `${id}BodySchema`, params.body);
  const answer = await method(api, id)(parts);
  hold(id, `${id}ResponseSchema`, answer);
  called.add(id);
  await refused(id, params, stranger, 401);
  return answer;
}

/** Calls an operation that is refused; the refusal fits the schema of its status. */
async function refused(id, params, client, status) {
  const parts = { pathParams: params.path, queryParams: params.query, body: params.body };
  const error = await method(client, id)(parts).then(
    () => assert.fail(`${id} was not refused with ${status}`),
    (error) => error
  );
  assert.equal(error.status, status, `${id}: ${error.message}`);
  const schema = `${id}Status${status}Schema`;
  // Not every status of an operation is described there.
  if (Schemas[schema]) hold(id, schema, error.body);
}

const document = await (await fetch(`${baseUrl}/openapi.json`)).json();
const operations = Object.values(document.paths).flatMap((item) => Object.values(item));
// What branches are reached by is for drivers, who may ask for an installation on Vercel is what Vercel signs for, who
// sends deliveries signs them, and agents speak a protocol of their own.
const ofOthers = ['Gateway', 'MCP', 'Projects Webhooks', 'Vercel', 'Webhooks'];
const ofApi = operations.filter((operation) => !operation.tags.some((tag) => ofOthers.includes(tag)));
const documented = ofApi.map((operation) => operation.operationId);

const { organizations } = await call('getOrganizationsList');
assert(organizations.length > 0);
const aws = { customer_id: 'ifAPi5AcF3', product_id: 'prod-5f3k2example', account_id: '123456789012' };
const subscribed = { body: { marketplace: 'aws', company_name: 'Acme', aws } };
await call('registerMarketplace', subscribed);
await refused('registerMarketplace', subscribed, api, 409);
const made = await call('createOrganization', { body: { name: 'sdk' } });
assert.equal(made.marketplace, 'aws', 'what was subscribed to is of the next organization');
const another = await call('createOrganization', { body: { name: 'another' } });
assert(!('marketplace' in another), 'and of no other');
const path = { organizationID: made.id };
assert.equal((await call('getOrganization', { path })).name, 'sdk');
const body = { id: made.id, name: 'the client' };
assert.equal((await call('updateOrganization', { path, body })).name, 'the client');
const { members } = await call('listOrganizationMembers', { path });
assert.equal(members.length, 1);
await refused('removeOrganizationMember', { path: { ...path, userID: members[0].id } }, api, 403);
await refused('removeOrganizationMember', { path: { ...path, userID: 'usr_unknown' } }, api, 404);
const invited = await call('createOrganizationInvitation', { path, body: { email: 'Ada@Example.com' } });
const { invitations } = await call('listOrganizationInvitations', { path, query: { email: 'ada@example.com' } });
assert.deepEqual(invitations, [invited]);
const onInvitation = { ...path, invitationID: invited.id };
assert(new URL((await call('getOrganizationInvitation', { path: onInvitation })).invite_link).searchParams.get('token'));
await refused('createOrganizationInvitation', { path, body: { email: 'ada@example.com' } }, api, 409);
await call('resendOrganizationInvitation', { path: onInvitation });
await call('deleteOrganizationInvitation', { path: onInvitation });
await refused('getOrganizationInvitation', { path: onInvitation }, api, 404);
await call('getOrganizationLimits', { path });
await call('getOrganizationMembershipLimits', { path });
await call('getDefaultProjectLimits', { path });

const billed = await call('getBillingCustomer', { path });
assert(billed.billing_email.includes('@'));
assert.deepEqual([billed.marketplace, billed.collection_method], ['aws', 'marketplace']);
const customer = await call('updateBillingCustomer', { path, body: { billing_email: 'books@example.com' } });
assert.equal(customer.billing_email, 'books@example.com');
assert.deepEqual((await call('getBillingInvoices', { path })).data, []);
await refused('getBillingUpcomingInvoice', { path }, api, 404);
await refused('createBillingCheckoutSession', { path }, api, 400);
await refused('createBillingPaymentMethodSession', { path }, api, 400);

const newKey = { name: 'sdk', expiry: '2099-01-01T00:00:00Z', scopes: ['project:read'], projects: [], branches: [] };
const { key } = await call('createOrganizationAPIKey', { path, body: newKey });
assert.deepEqual((await call('listOrganizationAPIKeys', { path })).keys.map((key) => key.id), [key.id]);
await call('deleteOrganizationAPIKeys', { path, body: { ids: [key.id] } });
const own = await call('createUserAPIKey', { body: { name: 'sdk', expiry: null } });
assert((await call('listUserAPIKeys')).keys.some((key) => key.id === own.key.id));
await call('deleteUserAPIKeys', { body: { ids: [own.key.id] } });

const { regions } = await call('listRegions', { path });
const region = regions[0].id;
const { instanceTypes } = await call('listInstanceTypes', { path, query: { region } });
const { images } = await call('listImages', { path, query: { region } });
const { extensions } = await call('listExtensions', { path, query: { image: images[0].name, region } });
assert(extensions.length > 0);

const project = await call('createProject', { path, body: { name: 'sdk' } });
assert.equal((await call('listProjects', { path })).projects.length, 1);
const inProject = { ...path, projectID: project.id };
await call('getProject', { path: inProject });
const ipFiltering = { enabled: false, cidr: [{ cidr: '10.0.0.0/8' }] };
await call('updateProject', { path: inProject, body: { configuration: { ...project.configuration, ipFiltering } } });
await call('getProjectLimits', { path: inProject });

const configuration = {
  region,
  instanceType: instanceTypes[0].name,
  image: images[0].name,
  replicas: 0,
  storage: 10,
  postgresConfigurationParameters: { work_mem: '8MB' },
  preloadLibraries: ['pg_stat_statements']
};
const main = await call('createBranch', { path: inProject, body: { name: 'main', mode: 'custom', configuration } });
const inBranch = { ...inProject, branchID: main.id };
// On a busy machine a creation answers before the branch is ready.
const deadline = Date.now() + 120_000;
const state = async () => (await api.branches.describeBranch({ pathParams: inBranch })).status.statusType;
while ((await state()) !== 'STATUS_TYPE_HEALTHY') {
  assert(Date.now() < deadline, 'the branch was not ready in time');
  await new Promise((resolve) => setTimeout(resolve, 50));
}
const child = { name: 'child', description: 'a copy', mode: 'inherit', parentID: main.id };
await call('createBranch', { path: inProject, body: child });
assert.equal((await call('listBranches', { path: inProject })).branches.length, 2);
const full = await call('describeBranch', { path: inBranch });
const { backups } = await call('listBackups', { path: inProject });
if (regions[0].backupsEnabled) {
  assert.deepEqual(backups.map((backup) => backup.branchID).includes(main.id), true);
  const onBackup = { ...inProject, backupID: main.id };
  while ((await call('getBackup', { path: onBackup })).latestRestore === undefined) {
    assert(Date.now() < deadline, 'the branch could not be restored in time');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const kept = { retentionPeriod: 7, backupTime: '*:03:15' };
  const restored = await call('restoreFromBackup', { path: inBranch, body: { name: 'restored', backupConfiguration: kept } });
  assert.equal(restored.parentID, main.id);
  const settings = await call('describeBranch', { path: { ...inProject, branchID: restored.id } });
  assert.deepEqual(settings.backupConfiguration, kept);
} else {
  await refused('getBackup', { path: { ...inProject, backupID: main.id } }, api, 404);
  await refused('restoreFromBackup', { path: inBranch, body: { name: 'restored' } }, api, 404);
}
assert.equal(full.configuration.postgresConfigurationParameters.work_mem, '8MB');
await call('updateBranch', { path: inBranch, body: { name: 'renamed', postgresConfigurationParameters: { seq_page_cost: '2' } } });
const { parameters } = await call('getBranchPostgresConfig', { path: inBranch });
assert.equal(parameters.find((parameter) => parameter.name === 'work_mem').currentValue, '8MB');
await call('rotateBranchCredentials', { path: inBranch, body: { username: 'app' } });
const credentials = await call('getBranchCredentials', { path: inBranch, query: { username: 'app' } });
assert(credentials.connectionString.startsWith('postgresql://'));
const span = { start: '2020-01-01T00:00:00Z', end: '2100-01-01T00:00:00Z' };
const filters = [{ field: 'body', op: 'icontains', value: 'READY TO ACCEPT' }];
const { logs } = await call('branchLogs', { path: inBranch, body: { ...span, filters } });
assert.equal(logs[0].process, 'postmaster');
const minutes = (count) => new Date(Date.now() - count * 60_000).toISOString();
const history = { start: minutes(60), end: minutes(0), metrics: ['cpu', 'disk'], aggregations: ['avg', 'max'] };
const { results } = await call('branchMetrics', { path: inBranch, body: history });
assert.deepEqual(results.map((result) => result.metric), ['cpu', 'disk']);

await call('listGithubAppInstallations', { path });
await refused('createGithubAppInstallation', { path, body: { installationId: 7 } }, api, 400);
assert.equal((await call('getGithubRepository', { path: inBranch })).mapping, null);
await refused('createGithubRepository', { path: inBranch, body: { githubRepositoryID: 7 } }, api, 400);
await refused('deleteGithubRepository', { path: inBranch }, api, 404);
// A key of ours is good for nothing there.
const installation = { installationId: 'icfg_1' };
const terms = { scopes: [], acceptedPolicies: {}, credentials: { access_token: 'x', token_type: 'Bearer' }, account: { url: 'https://vercel.com/x' } };
await refused('upsertInstallation', { path: installation, body: terms }, api, 403);
await refused('deleteInstallation', { path: installation, body: {} }, api, 403);

// Nobody signed these.
for (const id of ['githubWebhook', 'stripeWebhook', 'orbWebhook']) await refused(id, { body: {} }, api, 400);
const accept = { accept: 'application/json, text/event-stream' };
const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
const answer = await api.mcp.sendMcpRequest({ body: ping, headers: accept });
hold('sendMcpRequest', 'sendMcpRequestResponseSchema', answer);
for (const id of ['githubWebhook', 'stripeWebhook', 'orbWebhook', 'vercelWebhook', 'sendMcpRequest']) {
  assert(operations.some((operation) => operation.operationId === id), `${id} is documented`);
}

for (const id of ['describeBranch', 'deleteBranch']) {
  await refused(id, { path: { ...inProject, branchID: 'unknown' } }, api, 404);
}
await refused('getProject', { path: { ...path, projectID: 'unknown' } }, api, 404);
await refused('getProject', { path: { ...path, projectID: 'a.b' } }, api, 400);
await call('deleteBranch', { path: inBranch });
await call('deleteProject', { path: inProject });
await call('deleteOrganization', { path });
const unwanted = await api.organizations.createOrganization({ body: { name: 'unwanted' } });
await call('requestOrganizationDeletion', { path: { organizationID: unwanted.id } });

const exempt = [...OURS, ...NEED_ANOTHER_PERSON, ...NEED_PRICES, ...NEED_GITHUB];
const missing = documented.filter((id) => !called.has(id) && !exempt.includes(id));
assert.deepEqual(missing, [], 'every documented operation is called here');
console.log(`${called.size} operations fit the client`);
