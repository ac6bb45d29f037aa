// Builds the pages into the directory of the first argument, by default ../dist. The result depends
// on the sources and on package-lock.json only, so building again gives the same bytes.
import { build } from "esbuild";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "dist");

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/style.css"],
  entryNames: "assets/[name]-[hash]",
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
});
const name = (suffix) =>
  "assets/" + basename(Object.keys(result.metafile.outputs).find((o) => o.endsWith(suffix)));
const index = await readFile(join(here, "index.html"), "utf8");
await writeFile(
  join(out, "index.html"),
  index.replace("MAIN_CSS", name(".css")).replace("MAIN_JS", name(".js")),
);
await cp(join(here, "icon.svg"), join(out, "icon.svg"));
// What is bundled comes with its licence.
await cp(join(here, "node_modules/preact/LICENSE"), join(out, "preact.licence.txt"));
