import { readdirSync, readFileSync, statSync } from "node:fs";
import { expect, test } from "vitest";

const DIST = new URL("../dist/", import.meta.url).pathname;
const KB = 1000;

/** Bytes that a browser loads of these files. */
function sent(names: string[]): number {
  return names.reduce((sum, name) => sum + statSync(`${DIST}assets/${name}.gz`).size, 0);
}

const assets = readdirSync(`${DIST}assets`);
const index = readFileSync(`${DIST}index.html`, "utf8");
const first = assets.filter((name) => /\.(js|css)$/.test(name) && index.includes(name));

test("what is loaded first stays small", () => {
  expect(sent(first.filter((name) => name.endsWith(".js")))).toBeLessThan(150 * KB);
  expect(sent(assets.filter((name) => name.endsWith(".css")))).toBeLessThan(15 * KB);
});

test("the editor is loaded by who writes SQL, and stays small", () => {
  const editor = assets.filter((name) => /^Editor-.*\.js$/.test(name));
  expect(editor).toHaveLength(1);
  expect(first).not.toContain(editor[0]);
  expect(sent(editor)).toBeLessThan(145 * KB);
});

test("charts are loaded by who looks at them, and stay small", () => {
  const charts = assets.filter((name) => /^Metrics-.*\.js$/.test(name));
  expect(charts).toHaveLength(1);
  expect(first).not.toContain(charts[0]);
  expect(sent(charts)).toBeLessThan(25 * KB);
});

test("the page loads nothing from anywhere else, and has no code of its own", () => {
  expect(index).not.toMatch(/https?:|<script(?![^>]*src=)|<style|onload=/);
});
