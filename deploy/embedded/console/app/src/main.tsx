import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Session, get, live, post, useConnected, useFeed } from "./api";
import { Backups } from "./pages/backups";
import { Coordination } from "./pages/coordination";
import { Events } from "./pages/events";
import { Keyspaces } from "./pages/keyspaces";
import { Nodes } from "./pages/nodes";
import { Overview, verdict } from "./pages/overview";
import { Partitions } from "./pages/partitions";
import { Placement } from "./pages/placement";
import { Slow } from "./pages/slow";
import { Transactions } from "./pages/transactions";
import type { Cluster } from "./types";
import { Do, Link, Page, Place, at, here, onMove } from "./ui";

const pages: [string, string][] = [
  ["", "Overview"],
  ["nodes", "Nodes"],
  ["keyspaces", "Keyspaces"],
  ["partitions", "Partitions"],
  ["placement", "Placement"],
  ["transactions", "Transactions"],
  ["slow", "Slow requests"],
  ["coordination", "Coordination"],
  ["backups", "Backups"],
  ["events", "Events"],
];

function Shown({ place, session }: { place: Place; session: Session }) {
  switch (place.page) {
    case "": return <Overview demo={session.demo} />;
    case "nodes": return <Nodes admin={session.admin} />;
    case "keyspaces": return <Keyspaces />;
    case "partitions": return <Partitions place={place} />;
    case "placement": return <Placement place={place} admin={session.admin} />;
    case "transactions": return <Transactions admin={session.admin} />;
    case "slow": return <Slow />;
    case "coordination": return <Coordination />;
    case "backups": return <Backups />;
    case "events": return <Events place={place} />;
    default:
      return (
        <Page title="There is no such page">
          <p><Link to={at("")}>Go to the overview</Link></p>
        </Page>
      );
  }
}

// ---- Light and dark: as the system has it, or as the reader has chosen

type Theme = "" | "light" | "dark";
const themeKey = "tidemark-console-theme";

function useTheme(): [Theme, (t: Theme) => void] {
  const [theme, set] = useState<Theme>(() => {
    try {
      return (localStorage.getItem(themeKey) as Theme) ?? "";
    } catch {
      return "";
    }
  });
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem(themeKey, theme);
    } catch {
      // Then the choice lasts until the page is closed.
    }
  }, [theme]);
  return [theme, set];
}

function Theme() {
  const [theme, set] = useTheme();
  const next: Theme = theme === "" ? "dark" : theme === "dark" ? "light" : "";
  const name = theme === "dark" ? "Dark" : theme === "light" ? "Light" : "Auto";
  return (
    <button class="theme" onClick={() => set(next)} aria-label={`Colours: ${name}`} title="Light, dark, or as the system">
      {name}
    </button>
  );
}

// ---- The frame

function Health() {
  const { data } = useFeed<Cluster>("cluster");
  const connected = useConnected();
  if (!connected) return <p class="health warn" role="status"><span class="dot" aria-hidden="true" />The server does not answer. Trying again…</p>;
  if (!data) return <p class="health" role="status">…</p>;
  const v = verdict(data);
  return <p class={"health " + v.tone} role="status"><span class="dot" aria-hidden="true" />{v.text}</p>;
}

function Frame({ session, reload }: { session: Session; reload: () => void }) {
  const [place, set] = useState(here);
  useEffect(() => onMove(() => {
    set(here());
    window.scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }), []);
  return (
    <div class="frame">
      <a class="skip" href="#main">Skip to the page</a>
      <header class="top">
        <Link to={at("")} class="brand">
          <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M4 13c4-4 8-4 12 0s8 4 12 0M4 20c4-4 8-4 12 0s8 4 12 0" /></svg>
          Tidemark
        </Link>
        <Health />
        <div class="who">
          {session.user && <span>{session.user}</span>}
          {session.user && <Do run={async () => { await post("logout"); reload(); }}>Log out</Do>}
          <Theme />
        </div>
      </header>
      <nav class="nav" aria-label="Pages">
        {pages.map(([page, name]) => (
          <Link key={page} to={at(page)} current={place.page === page}>{name}</Link>
        ))}
        <p class="version">{session.version}</p>
      </nav>
      <main id="main" tabIndex={-1}>
        <Shown place={place} session={session} />
      </main>
    </div>
  );
}

function Login({ reload }: { reload: () => void }) {
  const [error, say] = useState("");
  const [busy, set] = useState(false);
  return (
    <main class="alone">
      <h1>Tidemark</h1>
      <p class="lead">Authentication is enabled in this cluster. Log in as one of its users.</p>
      <form
        onSubmit={async (e) => {
          e.preventDefault();
          const form = new FormData(e.currentTarget);
          set(true);
          say("");
          try {
            await post("login", { User: form.get("user"), Password: form.get("password") });
            reload();
          } catch (x) {
            say((x as Error).message);
          }
          set(false);
        }}
      >
        <label for="user">User</label>
        <input id="user" name="user" autocomplete="username" required autofocus />
        <label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" required />
        {location.protocol === "http:" && <p class="quietly">This connection is not encrypted: use it on this machine only.</p>}
        {error && <p class="failed" role="alert">{error}</p>}
        <button type="submit" disabled={busy}>{busy ? "Logging in…" : "Log in"}</button>
      </form>
    </main>
  );
}

function App() {
  const [session, set] = useState<Session>();
  const [error, say] = useState("");
  const load = () =>
    get<Session>("session").then(
      (s) => { set(s); say(""); },
      (e: Error) => say(e.message),
    );
  useEffect(() => {
    void load();
    live.denied = () => void load();
  }, []);
  if (error && !session)
    return <main class="alone"><h1>Tidemark</h1><div class="notice bad" role="alert"><strong>The server does not answer.</strong> {error}</div><button onClick={load}>Try again</button></main>;
  if (!session) return <p class="boot">Loading the console…</p>;
  if (session.guarded && !session.user) return <Login reload={load} />;
  if (session.refused)
    return <main class="alone"><h1>Tidemark</h1><div class="notice warn" role="alert"><strong>This console is not for you.</strong> {session.refused}</div></main>;
  return <Frame session={session} reload={load} />;
}

const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);
