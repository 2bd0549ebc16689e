// What happens, as it happens: one stream for the whole page, and streams of a view's own.
// Decides: when a stream is opened again, and where it goes on. Never: opens one in a page that nobody sees:
// a browser has few connections for all pages of a daemon. Follows: after a gap every reader is told to look
// again, so a page is right whatever was missed.

import { events, Refusal } from "./api.js";

const FIRST_MS = 500;
const LAST_MS = 5000;
export const STATES = [
  "compute.created",
  "compute.bound",
  "compute.adopted",
  "compute.provisioning",
  "compute.ready",
  "compute.degraded",
  "compute.recovering",
  "compute.failed",
  "compute.resized",
  "compute.generation.created",
  "compute.generation.applied",
  "compute.lease.claimed",
  "compute.lease.released",
  "compute.abandoned",
  "compute.deleting",
  "compute.deletion_failed",
  "compute.strays_terminated",
  "compute.deleted",
  "node.requested",
  "node.provisioning",
  "node.connecting",
  "node.bootstrapping",
  "node.ready",
  "node.draining",
  "node.lost",
  "node.deleting",
  "node.deleted",
  "node.failed",
  "task.queued",
  "task.started",
  "task.succeeded",
  "task.failed",
  "task.cancelled",
  "task.timed_out",
  "task.indeterminate",
];

const seen = () =>
  document.visibilityState === "visible"
    ? Promise.resolve()
    : new Promise((there) => document.addEventListener("visibilitychange", there, { once: true }));

/** Follow events until `signal`; `heed(event)` gets each, and `tell(word)` how the stream is: live, waiting, away. */
export async function follow(query, { signal, heed, tell = () => {}, headers = {} }) {
  let [cursor, pause] = [null, FIRST_MS];
  while (!signal.aborted) {
    await seen();
    if (signal.aborted) return;
    const leaving = new AbortController();
    const leave = () => leaving.abort();
    const hide = () => {
      if (document.visibilityState !== "visible") leave();
    };
    signal.addEventListener("abort", leave, { once: true });
    document.addEventListener("visibilitychange", hide);
    try {
      const from = cursor === null ? {} : { "last-event-id": cursor };
      for await (const event of events("/v1/events", {
        query,
        signal: leaving.signal,
        headers: { ...headers, ...from },
      })) {
        tell("live");
        pause = FIRST_MS;
        if (event.id !== null) cursor = event.id;
        if (event.data !== null) heed(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status === 410) cursor = null;
      else if (error instanceof Refusal && error.status < 500) throw error;
    } finally {
      signal.removeEventListener("abort", leave);
      document.removeEventListener("visibilitychange", hide);
    }
    if (document.visibilityState === "visible") {
      tell("waiting");
      await new Promise((after) => setTimeout(after, pause));
      pause = Math.min(pause * 2, LAST_MS);
    } else tell("away");
  }
}

const readers = new Set();

/** Be told of every move of computes, nodes and tasks, while `signal` lasts. `heed(null)`: look again. */
export function onMove(heed, signal) {
  readers.add(heed);
  signal.addEventListener("abort", () => readers.delete(heed), { once: true });
}

export async function begin(tell, signal) {
  let was = "live";
  await follow(
    { types: STATES.join(",") },
    {
      signal,
      heed: (event) => {
        for (const reader of readers) reader(event);
      },
      tell: (word) => {
        if (word === "live" && was !== "live") for (const reader of readers) reader(null);
        was = word;
        tell(word);
      },
    },
  );
}
