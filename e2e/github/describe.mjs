// Cuts what the platform asks of GitHub out of GitHub's own description of its API, and takes what an operation does
// not name in a body for a mistake: GitHub would not say so.
//
//   node describe.mjs WHOLE.json CUT.json

import { readFileSync, writeFileSync } from 'node:fs';

const OPERATIONS = {
  '/app': ['get'],
  '/app/hook/deliveries': ['get'],
  '/app/hook/deliveries/{delivery_id}/attempts': ['post'],
  '/app/installations/{installation_id}': ['get'],
  '/app/installations/{installation_id}/access_tokens': ['post'],
  '/repos/{owner}/{repo}/check-runs': ['post'],
  '/repos/{owner}/{repo}/check-runs/{check_run_id}': ['patch'],
  '/repos/{owner}/{repo}/commits/{ref}/check-runs': ['get'],
  '/repos/{owner}/{repo}/deployments': ['get', 'post'],
  '/repos/{owner}/{repo}/deployments/{deployment_id}': ['delete'],
  '/repos/{owner}/{repo}/deployments/{deployment_id}/statuses': ['post'],
  '/repos/{owner}/{repo}/issues/comments/{comment_id}': ['patch'],
  '/repos/{owner}/{repo}/issues/{issue_number}/comments': ['get', 'post'],
  '/repos/{owner}/{repo}/pulls': ['get'],
  '/repos/{owner}/{repo}/pulls/{pull_number}': ['get'],
  '/user/installations/{installation_id}/repositories': ['get'],
};

const [from, to] = process.argv.slice(2);
const whole = JSON.parse(readFileSync(from));
const cut = { openapi: whole.openapi, info: whole.info, servers: whole.servers, paths: {}, components: {} };

/** Takes along what something refers to. */
function follow(value) {
  if (value === null || typeof value !== 'object') return;
  const [, , kind, name] = typeof value.$ref === 'string' ? value.$ref.split('/') : [];
  if (name && !cut.components[kind]?.[name]) {
    (cut.components[kind] ??= {})[name] = whole.components[kind][name];
    follow(whole.components[kind][name]);
  }
  Object.values(value).forEach(follow);
}

function forbidOthers(schema) {
  if (schema?.properties) schema.additionalProperties ??= false;
  for (const part of [schema?.items, ...Object.values(schema?.properties ?? {})]) if (part) forbidOthers(part);
}

for (const [path, methods] of Object.entries(OPERATIONS)) {
  cut.paths[path] = {};
  for (const method of methods) {
    const operation = whole.paths[path][method];
    // What is said of answers is not about us.
    operation.responses = { default: { description: 'Any' } };
    forbidOthers(operation.requestBody?.content['application/json'].schema);
    cut.paths[path][method] = operation;
  }
}
follow(cut.paths);
writeFileSync(to, JSON.stringify(cut));
