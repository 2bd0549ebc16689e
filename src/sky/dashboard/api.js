// How the dashboard asks the daemon: with the token of whoever looks, in the shapes of its three faces.
// Decides: where the token and the customer's key are kept: in this tab, until it is closed.
// Never: puts either into an address. Follows: what is refused is thrown as a Refusal, in the daemon's words.

const TOKEN = "sky.token";
const KEY = "sky.key";
const WAIT_S = 20;

export class Refusal extends Error {
  constructor(status, told) {
    const error = told?.error ?? told ?? {};
    super(error.message ?? `the daemon answered ${status}`);
    const details = error.details ?? {};
    Object.assign(this, { status, code: details.type ?? error.code ?? error.type, details });
  }
}

export class Unreachable extends Error {
  constructor() {
    super("the daemon does not answer; try again when it does");
    this.code = "unreachable";
  }
}

const NO_DAEMON = new Set([502, 503, 504]); // what a proxy answers, in no words of the daemon's
const waiting = new Set();
let away = false;

/** Be told whenever the daemon goes away or comes back. */
export const onAway = (tell) => waiting.add(tell);
export const isAway = () => away;

function answered(whether) {
  if (away !== whether) return;
  away = !whether;
  for (const tell of waiting) tell(away);
}

export class Failed extends Error {
  constructor(error) {
    super(error?.message ?? "the request was cancelled");
    this.code = error?.type;
  }
}

const kept = (name) => ({
  get: () => sessionStorage.getItem(name),
  set: (text) => (text ? sessionStorage.setItem(name, text) : sessionStorage.removeItem(name)),
});
export const token = kept(TOKEN);
export const key = kept(KEY);

export function random() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) =>
    one.toString(16).padStart(2, "0"),
  ).join("");
}

export async function open(method, path, { body, content, query, signal, headers = {} } = {}) {
  const bearer = path.startsWith("/compute/") ? key.get() : token.get();
  const asked = new URLSearchParams(
    Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== ""),
  );
  const sent = { ...headers };
  if (bearer) sent.authorization = `Bearer ${bearer}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  if (content !== undefined) sent["content-type"] = "application/gzip";
  let answer;
  try {
    answer = await fetch(asked.size ? `${path}?${asked}` : path, {
      method,
      signal,
      headers: sent,
      body: body === undefined ? content : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    answered(false);
    throw new Unreachable();
  }
  const told = answer.ok ? null : await answer.json().catch(() => null);
  const there = answer.ok || told !== null || !NO_DAEMON.has(answer.status);
  answered(there);
  if (!there) throw new Unreachable();
  if (answer.ok) return answer;
  throw new Refusal(answer.status, told);
}

export async function call(method, path, options) {
  const answer = await open(method, path, options);
  return answer.status === 204 ? null : answer.json();
}

export const send = (path, options) => call("POST", path, options);

export const get = (path, query, signal) => call("GET", path, { query, signal });

/** What there is of clusters, or of the jobs of one: reads that leave no request behind. */
export const looks = {
  clusters: async (page, name) =>
    (await get("/api/clusters", { name, all_users: true }, page.signal)).items,
  jobs: async (page, name) =>
    (await get(`/api/clusters/${encodeURIComponent(name)}/jobs`, { all_users: true }, page.signal)).items,
  costs: async (page, days) => (await get("/api/costs", { days }, page.signal)).items,
};

/** Ask a request of face 2 and wait for its result; what it became is thrown when it is none. */
export async function request(name, body, { signal, idempotent } = {}) {
  const headers = idempotent ? { "idempotency-key": idempotent } : {};
  let { record } = await call("POST", `/${name}`, { body, signal, headers });
  while (record.finished_at === null) {
    record = await get("/api/get", { request_id: record.request_id, wait: WAIT_S }, signal);
  }
  if (record.status !== "SUCCEEDED") throw new Failed(record.error);
  return record.result;
}

/** Submit a request; its record, without waiting. */
export async function submit(name, body) {
  return (await call("POST", `/${name}`, { body, headers: { "idempotency-key": random() } })).record;
}

async function* texts(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable();
    }
    if (piece.done) return;
    held += piece.value;
    const parts = held.split("\n");
    held = parts.pop();
    yield* parts;
  }
}

/** Objects of an answer in JSON lines. */
export async function* lines(method, path, options) {
  for await (const line of texts(await open(method, path, options))) if (line) yield JSON.parse(line);
}

/** Parts of an answer in the form of Server-Sent Events: {id, name, text}; text null where an id stands alone. */
export async function* frames(path, options) {
  let [id, name, said] = [null, null, []];
  for await (const line of texts(await open("GET", path, options))) {
    if (line === "") {
      if (id !== null || said.length) yield { id, name, text: said.length ? said.join("\n") : null };
      [id, name, said] = [null, null, []];
    } else if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) said.push(line.slice(6));
  }
}

/** The same, of data in JSON: {id, name, data}. */
export async function* events(path, options) {
  for await (const { id, name, text } of frames(path, options))
    yield { id, name, data: text === null ? null : JSON.parse(text) };
}

/** Everything of a list in pages, up to `most`. */
export async function all(path, query = {}, { signal, most = 500 } = {}) {
  const items = [];
  let cursor;
  do {
    const page = await get(path, { ...query, limit: Math.min(most, 500), cursor }, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && items.length < most);
  return items;
}
