// Checks values by the types of Orb's own client: reads lines of JSON with a type, where it is declared, and a value.
// With `isPart` the value may leave out what it likes; what it has must be right, and nothing else may be there.

import { createInterface } from 'node:readline';
import ts from 'typescript';

const lines = [
  `type Part<T> = T extends (infer U)[] ? Part<U>[]
     : T extends string | number | boolean | null | undefined ? T
     : T extends object ? { [K in keyof T]?: Part<T[K]> } : T;`,
];
for await (const line of createInterface({ input: process.stdin })) {
  const { type, from, value, isPart } = JSON.parse(line);
  const named = `import('orb-billing/resources/${from}').${type}`;
  lines.push(`export const v${lines.length}: ${isPart ? `Part<${named}>` : named} = ${JSON.stringify(value)};`);
}
const name = `${import.meta.dirname}/values.ts`;
const options = {
  strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
};
const host = ts.createCompilerHost(options);
const { fileExists, readFile, getSourceFile } = host;
host.fileExists = (path) => path === name || fileExists(path);
host.readFile = (path) => (path === name ? lines.join('\n') : readFile(path));
host.getSourceFile = (path, ...more) =>
  path === name ? ts.createSourceFile(path, lines.join('\n'), options.target) : getSourceFile(path, ...more);
const program = ts.createProgram([name], options, host);
const found = ts.getPreEmitDiagnostics(program);
console.log(ts.formatDiagnostics(found, { ...host, getNewLine: () => '\n' }));
console.log(lines.join('\n'));
process.exit(found.length === 0 && lines.length > 1 ? 0 : 1);
