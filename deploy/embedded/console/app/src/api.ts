// What the console asks of its server: the session, the feeds, and changes.
import { useEffect, useState } from "preact/hooks";

export interface Session {
  guarded: boolean;
  user?: string;
  refused?: string;
  admin: boolean;
  demo: boolean;
  version: string;
}

export interface Message<T> {
  data?: T;
  error?: string;
  denied?: boolean;
}

/** A change that the server has refused; the message is a sentence. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

const base = "/console/api/";

async function answer<T>(response: Response): Promise<T> {
  const body = (await response.json().catch(() => ({}))) as Message<never> & T;
  if (!response.ok) {
    throw new Refused(body.error ?? `the server answered ${response.status}`, response.status);
  }
  return body;
}

export async function get<T>(path: string): Promise<T> {
  return answer<T>(await fetch(base + path, { credentials: "same-origin" }));
}

export async function post(path: string, body: object = {}): Promise<void> {
  const headers = { "Content-Type": "application/json", "X-Tidemark-Console": "1" };
  await answer(await fetch(base + path, {
    method: "POST", headers, credentials: "same-origin", body: JSON.stringify(body),
  }));
}

// One stream carries the feeds of all that is shown. It is opened again when the set of feeds
// changes, and closed while nobody looks at the page: browsers allow few connections to a server.

type Listener = (m: Message<unknown>) => void;

class Live {
  private listeners = new Map<string, Set<Listener>>();
  private latest = new Map<string, Message<unknown>>();
  private source?: EventSource;
  private opened = "";
  private planned = false;
  private before = false;
  private states = new Set<(ok: boolean) => void>();
  connected = true;
  /** Called when the server says that the session is over, or when it may be another one. */
  denied = () => {};

  constructor() {
    document.addEventListener("visibilitychange", () => this.plan());
  }

  follow(feed: string, listener: Listener): () => void {
    let all = this.listeners.get(feed);
    if (!all) this.listeners.set(feed, (all = new Set()));
    all.add(listener);
    const known = this.latest.get(feed);
    if (known) listener(known);
    this.plan();
    return () => {
      all.delete(listener);
      if (all.size === 0) {
        this.listeners.delete(feed);
        this.latest.delete(feed);
      }
      this.plan();
    };
  }

  watch(f: (ok: boolean) => void): () => void {
    this.states.add(f);
    return () => this.states.delete(f);
  }

  private plan() {
    if (this.planned) return;
    this.planned = true;
    setTimeout(() => {
      this.planned = false;
      this.open();
    }, 0);
  }

  private open() {
    const feeds = document.hidden ? [] : [...this.listeners.keys()].sort();
    const query = feeds.map((f) => "feed=" + encodeURIComponent(f)).join("&");
    if (query === this.opened && this.source?.readyState !== EventSource.CLOSED) return;
    this.source?.close();
    this.source = undefined;
    this.opened = query;
    if (!query) return;
    const source = (this.source = new EventSource(base + "live?" + query));
    source.onopen = () => {
      this.say(true);
      // The browser opens a stream again by itself, with the cookie of that moment.
      if (this.before) this.denied();
      this.before = true;
    };
    source.onerror = () => {
      this.say(false);
      if (source.readyState === EventSource.CLOSED) {
        // The server refused: it says why when it is asked for the session.
        this.denied();
        setTimeout(() => this.source === source && this.plan(), 2000);
      }
    };
    for (const feed of feeds) {
      source.addEventListener(feed, (e) => {
        const message = JSON.parse((e as MessageEvent<string>).data) as Message<unknown>;
        this.say(true);
        this.latest.set(feed, message);
        this.listeners.get(feed)?.forEach((l) => l(message));
      });
    }
  }

  private say(ok: boolean) {
    if (this.connected === ok) return;
    this.connected = ok;
    this.states.forEach((f) => f(ok));
  }
}

export const live = new Live();

/** Follows a feed. The data of the last answer stay while questions fail. */
export function useFeed<T>(feed: string): Message<T> {
  const [message, set] = useState<{ feed: string; m: Message<T> }>({ feed, m: {} });
  useEffect(
    () =>
      live.follow(feed, (m) =>
        set((before) => ({
          feed,
          m: { ...(m as Message<T>), data: (m.data as T) ?? (before.feed === feed ? before.m.data : undefined) },
        })),
      ),
    [feed],
  );
  return message.feed === feed ? message.m : {};
}

/** Whether the stream to the server is open. */
export function useConnected(): boolean {
  const [ok, set] = useState(live.connected);
  useEffect(() => live.watch(set) as () => void, []);
  return ok;
}
