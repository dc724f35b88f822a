import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// A platform that runs: `npm run dev` shows the console over it, with hot reload.
const platform = process.env["COPPICE_URL"] ?? "http://localhost:7070";

/** Beside each file of the build the same compressed, where that is smaller: the server only picks one. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    // As it was written: what stands in for it before is not the same.
    writeBundle({ dir = "dist" }, bundle) {
      for (const fileName of Object.keys(bundle).filter((name) => /\.(js|css|svg)$/.test(name))) {
        const path = join(dir, fileName);
        const source = readFileSync(path);
        const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
        const packed = { br: brotliCompressSync(source, quality), gz: gzipSync(source, { level: 9 }) };
        for (const [ending, bytes] of Object.entries(packed)) {
          if (bytes.length < source.length) writeFileSync(`${path}.${ending}`, bytes);
        }
      }
    },
  };
}

/** The directory is watched by cargo, so what is committed of it stays. */
const keepsDirectory: Plugin = {
  name: "keeps-directory",
  apply: "build",
  generateBundle() {
    const source = "# What Vite builds is not committed; the directory is, because cargo watches it.\n*\n!.gitignore\n";
    this.emitFile({ type: "asset", fileName: ".gitignore", source });
  },
};

export default defineConfig(({ command }) => ({
  // Relative to the page's <base>, which the server sets to wherever people find it.
  base: command === "build" ? "./" : "/console/",
  plugins: [react(), compressed(), keepsDirectory],
  build: {
    target: "es2023",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Every browser this is built for knows it; the substitute would need inline code.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    proxy: Object.fromEntries(
      // The name in the address bar stays: the door takes only pages of the origin that was called.
      ["/console/api", "/oauth", "/account", "/assets", "/invitation"].map((path) => [path, { target: platform, changeOrigin: false }]),
    ),
  },
}));
