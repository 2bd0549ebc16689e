// Files of a task, from a folder that was chosen or dropped, as one archive that the daemon stores.
// Decides: what stays behind, and what may be run. Never: keeps a file; all of it is read when it is sent.
// Follows: an archive that was made elsewhere goes as it is; equal files give an equal archive, which is sent
// and stored under its hash, as the SDK does.

import { send } from "./api.js";

const BLOCK = 512;
const NAME_MAX = 100;
const BYTES_MAX = 512 * 1024 * 1024;
const FILES_MAX = 20_000;
const LEFT = new Set(
  ".git .hg .svn .venv venv __pycache__ node_modules .mypy_cache .pytest_cache .ruff_cache .tox .nox .DS_Store".split(
    " ",
  ),
);
const ARCHIVE = /\.(tar\.gz|tgz)$/;
const text = new TextEncoder();

/** What is in an input of files or a folder: [{path, file}]. */
export const chosen = (files) =>
  [...files].map((file) => ({ path: file.webkitRelativePath.split("/").slice(1).join("/") || file.name, file }));

/** What was dropped: the content of one folder, or the files themselves. */
export async function dropped(items) {
  const entries = [...items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  const alone = entries.length === 1 && entries[0].isDirectory;
  const found = [];
  for (const entry of entries) await gather(entry, "", alone, found);
  return found;
}

async function gather(entry, under, isRoot, found) {
  if (LEFT.has(entry.name)) return;
  const path = isRoot ? "" : `${under}${entry.name}`;
  if (entry.isFile) {
    found.push({ path, file: await new Promise((done, wrong) => entry.file(done, wrong)) });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((done, wrong) => reader.readEntries(done, wrong));
    if (!some.length) return;
    for (const one of some) await gather(one, path && `${path}/`, false, found);
  }
}

/** What of it travels, and how much that is. Throws where it is too much. */
export function travelling(found) {
  const kept = found.filter(({ path }) => !path.split("/").some((part) => LEFT.has(part)));
  const size = kept.reduce((sum, { file }) => sum + file.size, 0);
  if (kept.length > FILES_MAX || size > BYTES_MAX)
    throw new Error(
      `these are ${kept.length} files of ${Math.ceil(size / 2 ** 20)} MiB, and a browser sends ${FILES_MAX} of 512 MiB; ` +
        "sky launch with workdir sends more",
    );
  return { files: kept, size, left: found.length - kept.length };
}

/** Have them stored; the hash of their archive. */
export async function stored(files, signal) {
  if (!crypto.subtle)
    throw new Error(
      "a browser makes the name of an archive only on a page that it got over https or from its own computer; " +
        "sky launch with workdir sends files from anywhere",
    );
  const archive = files.length === 1 && ARCHIVE.test(files[0].file.name) ? files[0].file : await packed(files);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await archive.arrayBuffer()));
  const sha256 = Array.from(digest, (one) => one.toString(16).padStart(2, "0")).join("");
  await send("/upload", { query: { sha256 }, content: archive, signal });
  return sha256;
}

async function packed(files) {
  const parts = [];
  for (const { path, file } of [...files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    const script = (await file.slice(0, 2).text()) === "#!";
    const name = text.encode(path);
    if (name.length > NAME_MAX) parts.push(...longName(path));
    parts.push(header(name.slice(0, NAME_MAX), file.size, script ? 0o755 : 0o644, "0"), file, filling(file.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Response(new Blob(parts).stream().pipeThrough(new CompressionStream("gzip"))).blob();
}

/** What stands before an entry whose name does not fit: its name as a record of its own (POSIX pax). */
function longName(path) {
  const rest = ` path=${path}\n`;
  let length = text.encode(rest).length;
  while (String(length).length + text.encode(rest).length > length) length += 1;
  const record = text.encode(`${length}${rest}`);
  return [header(text.encode("long"), record.length, 0o644, "x"), record, filling(record.length)];
}

const filling = (size) => new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);

function header(name, size, mode, kind) {
  const block = new Uint8Array(BLOCK);
  const put = (at, value) => block.set(typeof value === "string" ? text.encode(value) : value, at);
  const octal = (value, digits) => value.toString(8).padStart(digits, "0");
  put(0, name);
  put(100, octal(mode, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(size, 11));
  put(136, octal(0, 11));
  put(148, " ".repeat(8));
  put(156, kind);
  put(257, "ustar\u000000");
  const sum = block.reduce((all, one) => all + one, 0);
  put(148, `${octal(sum, 6)}\u0000 `);
  return block;
}
