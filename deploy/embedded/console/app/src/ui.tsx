// The parts that pages are made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Message } from "./api";

export type Tone = "good" | "warn" | "bad" | "quiet";

// ---- Addresses: /console/nodes, /console/partitions?keyspace=fruit

export interface Place {
  page: string;
  query: URLSearchParams;
}

export function here(): Place {
  const page = location.pathname.replace(/^\/console\/?/, "").replace(/\/$/, "");
  return { page, query: new URLSearchParams(location.search) };
}

let moved: () => void = () => {};
export function onMove(f: () => void) {
  moved = f;
  window.addEventListener("popstate", f);
}

export function go(to: string) {
  history.pushState(null, "", to);
  moved();
}

/** An address of a page of the console. */
export function at(page: string, query: Record<string, string | number | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "") q.set(k, String(v));
  const text = q.toString();
  return "/console/" + page + (text ? "?" + text : "");
}

export function Link(p: { to: string; children: ComponentChildren; class?: string; current?: boolean; label?: string }) {
  return (
    <a
      href={p.to}
      class={p.class}
      aria-current={p.current ? "page" : undefined}
      aria-label={p.label}
      onClick={(e) => {
        if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
        e.preventDefault();
        go(p.to);
      }}
    >
      {p.children}
    </a>
  );
}

export const NodeLink = ({ id }: { id: number }) => (
  <Link to={at("placement", { why: "n" + id })} label={`n${id}: why`}>n{id}</Link>
);

export const PartitionLink = ({ id }: { id: number }) => (
  <Link to={at("placement", { why: id })} label={`${id}: why`}>{id}</Link>
);

// ---- Frames

export function Page(p: { title: string; lead?: ComponentChildren; side?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = p.title + " · Tidemark";
  }, [p.title]);
  return (
    <>
      <header class="pagehead">
        <div>
          <h1>{p.title}</h1>
          {p.lead && <p class="lead">{p.lead}</p>}
        </div>
        {p.side && <div class="side">{p.side}</div>}
      </header>
      {p.children}
    </>
  );
}

export function Panel(p: { title?: string; note?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
  return (
    <section class={"panel" + (p.flush ? " flush" : "")}>
      {p.title && (
        <div class="panelhead">
          <h2>{p.title}</h2>
          {p.note && <span class="note">{p.note}</span>}
        </div>
      )}
      {p.children}
    </section>
  );
}

export const Badge = (p: { tone: Tone; children: ComponentChildren }) => (
  <span class={"badge " + p.tone}>{p.children}</span>
);

export function Tile(p: { label: string; value: ComponentChildren; unit?: string; sub?: ComponentChildren; tone?: Tone }) {
  return (
    <div class={"tile " + (p.tone ?? "")}>
      <dt>{p.label}</dt>
      <dd>
        <span class="value">{p.value}</span>
        {p.unit && <span class="unit"> {p.unit}</span>}
        {p.sub && <div class="sub">{p.sub}</div>}
      </dd>
    </div>
  );
}

/** A bar of how much of something is used. */
export function Bar(p: { part: number; label: string; tone?: Tone }) {
  const percent = Math.max(0, Math.min(100, p.part * 100));
  return (
    <span class={"bar " + (p.tone ?? "")} role="img" aria-label={p.label}>
      <span style={{ width: percent.toFixed(1) + "%" }} />
    </span>
  );
}

export const Empty = (p: { children: ComponentChildren }) => <p class="empty">{p.children}</p>;

/** Shows the answer of a feed, or why there is none. */
export function Answer<T>(p: { of: Message<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, denied } = p.of;
  return (
    <>
      {error && (
        <div class={"notice " + (denied ? "warn" : "bad")} role="alert">
          <strong>{denied ? "You may not see this." : data ? "The newest state is not known." : "This is not known."}</strong>{" "}
          {capital(error)}
          {data && !denied ? ". Shown is what was known last." : "."}
        </div>
      )}
      {data === undefined && !error ? <p class="empty" aria-busy="true">Asking the cluster…</p> : null}
      {data !== undefined && !denied && p.children(data)}
    </>
  );
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");

// ---- Tables

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  /** Left out on narrow screens. */
  detail?: boolean;
}

export function Table<T>(p: { label: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string | number; empty: string }) {
  if (p.rows.length === 0) return <Empty>{p.empty}</Empty>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={p.label}>
      <table>
        <caption class="unseen">{p.label}</caption>
        <thead>
          <tr>
            {p.columns.map((c) => (
              <th key={c.name} scope="col" class={cls(c)}>{c.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {p.rows.map((row) => (
            <tr key={p.id(row)}>
              {p.columns.map((c) => (
                <td key={c.name} class={cls(c)}>{c.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const cls = <T,>(c: Column<T>) => (c.number ? "num" : "") + (c.detail ? " detail" : "");

// ---- Controls

/** A button that does something and says what went wrong. ask: a question that has to be answered yes first. */
export function Do(p: { run: () => Promise<void>; children: ComponentChildren; ask?: string; danger?: boolean; label?: string }) {
  const [state, set] = useState<"" | "sure" | "busy">("");
  const [error, say] = useState("");
  const gone = useRef(false);
  useEffect(() => () => void (gone.current = true), []);
  const run = async () => {
    set("busy");
    say("");
    try {
      await p.run();
    } catch (e) {
      if (!gone.current) say((e as Error).message);
    }
    if (!gone.current) set("");
  };
  return (
    <span class="do">
      {state === "sure" ? (
        <span class="sure">
          {p.ask}{" "}
          <button class="danger" onClick={run}>Yes</button>{" "}
          <button onClick={() => set("")}>No</button>
        </span>
      ) : (
        <button class={p.danger ? "danger" : ""} aria-label={p.label} disabled={state === "busy"}
          onClick={() => (p.ask ? set("sure") : void run())}>
          {p.children}
        </button>
      )}
      {error && <span class="failed" role="alert">{error}</span>}
    </span>
  );
}

/** A choice of one of several. */
export function Choice<V extends string>(p: { label: string; value: V; options: [V, string][]; set: (v: V) => void }) {
  return (
    <div class="choice" role="group" aria-label={p.label}>
      {p.options.map(([value, text]) => (
        <button key={value} aria-pressed={value === p.value}
          class={value === p.value ? "on" : ""} onClick={() => p.set(value)}>{text}</button>
      ))}
    </div>
  );
}

export function Select(p: { label: string; value: string; options: [string, string][]; set: (v: string) => void }) {
  return (
    <label class="select">
      <span>{p.label}</span>
      <select value={p.value} onChange={(e) => p.set(e.currentTarget.value)}>
        {p.options.map(([value, text]) => (
          <option key={value} value={value}>{text}</option>
        ))}
      </select>
    </label>
  );
}
