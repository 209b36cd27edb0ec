import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const OUT = join(import.meta.dirname, "../src/rune/server/assets");
const PACKED = /\.(js|css|svg|html|txt)$/;

/** Stores each text file compressed as well, so that the server compresses nothing. The header carries no time. */
function packed(): Plugin {
  let folder = OUT;
  return {
    name: "packed",
    apply: "build",
    configResolved(config) {
      folder = config.build.outDir;
    },
    closeBundle() {
      for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
        if (!PACKED.test(name)) continue;
        const file = join(folder, name);
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), packed()],
  build: {
    outDir: process.env.RUNE_UI_OUT ?? OUT,
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0, // the content security policy permits no data: URLs
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 700,
    manifest: "manifest.json",
  },
  server: {
    port: 5173,
    proxy: Object.fromEntries(
      ["/api", "/hooks", "/version", "/docs", "/static", "/healthz", "/readyz"].map((path) => [
        path,
        // The server rejects requests from other origins, so the proxy sends its own.
        {
          target: process.env.RUNE_URL ?? "http://127.0.0.1:8080",
          changeOrigin: true,
          headers: { origin: process.env.RUNE_URL ?? "http://127.0.0.1:8080" },
        },
      ]),
    ),
  },
  test: { include: ["test/**/*.test.ts"], environment: "node", testTimeout: 60_000 },
} as never);
