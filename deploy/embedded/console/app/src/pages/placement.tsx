import { useEffect, useState } from "preact/hooks";
import { get, post, useFeed } from "../api";
import { bytes, plural, span } from "../format";
import type { Event, Operator, Placement as View } from "../types";
import { Answer, Badge, Column, Do, NodeLink, Page, PartitionLink, Panel, Place, Table, at, go } from "../ui";
import { EventsTable } from "./events";

/** The text of an explanation: what it says of one subject in a block. */
function Why({ of }: { of: string }) {
  const [text, set] = useState<{ text?: string; error?: string }>({});
  useEffect(() => {
    let over = false;
    set({});
    get<{ text: string }>("why?of=" + encodeURIComponent(of)).then(
      (a) => !over && set({ text: a.text }),
      (e: Error) => !over && set({ error: e.message }),
    );
    return () => void (over = true);
  }, [of]);
  if (text.error) return <div class="notice bad" role="alert"><strong>No explanation.</strong> {text.error}</div>;
  if (text.text === undefined) return <p class="empty" aria-busy="true">Asking the planner…</p>;
  return <pre class="why" tabIndex={0} aria-label={"Explanation of " + of}>{text.text.trim()}</pre>;
}

export function Placement({ place, admin }: { place: Place; admin: boolean }) {
  const of = place.query.get("why") ?? "";
  const [asked, ask] = useState(of);
  useEffect(() => ask(of), [of]);
  const feed = useFeed<View>("placement");
  const events = useFeed<Event[]>("events");
  const columns: Column<Operator>[] = [
    { name: "Partition", number: true, cell: (o) => <PartitionLink id={o.partition} /> },
    { name: "Keyspace", cell: (o) => o.keyspace, detail: true },
    { name: "Change", cell: (o) => <span class="nowrap">{o.kind}{o.cancelled ? " (taken back)" : ""}</span> },
    {
      name: "Nodes",
      cell: (o) => (
        <span class="nowrap">
          {o.from ? <NodeLink id={o.from} /> : null}
          {o.from && o.to ? " → " : null}
          {o.to ? <NodeLink id={o.to} /> : o.leader ? <>→ <NodeLink id={o.leader} /></> : null}
        </span>
      ),
    },
    { name: "Why", cell: (o) => o.reason },
    { name: "Now", cell: (o) => (o.waitsFor ? `${o.step}: waits for ${o.waitsFor}` : o.step), detail: true },
    { name: "Copies", number: true, cell: (o) => (o.bytes ? bytes(o.bytes) : "–"), detail: true },
    { name: "For", number: true, cell: (o) => span(o.seconds) },
  ];
  if (admin)
    columns.push({
      name: "Stop",
      cell: (o) => (
        <Do label={`take back the change of partition ${o.partition}`} ask="Take it back?"
          run={() => post("do/cancel-operator", { Partition: o.partition })}>Take back</Do>
      ),
    });
  return (
    <Page
      title="Placement"
      lead="What moves, and why; and the reasons for where everything is."
      side={
        feed.data?.settings && admin ? (
          feed.data.paused ? <Do run={() => post("do/resume")}>Resume placement</Do>
          : <Do ask="Nothing is moved then, not even for a repair." run={() => post("do/pause")}>Pause placement</Do>
        ) : null
      }
    >
      <Panel title="Explain">
        <form
          class="ask"
          onSubmit={(e) => {
            e.preventDefault();
            go(at("placement", { why: asked.trim() }));
          }}
        >
          <label for="why">A partition (17), a node (n3) or a keyspace (its name)</label>
          <span class="row">
            <input id="why" value={asked} onInput={(e) => ask(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
            <button type="submit">Why?</button>
          </span>
        </form>
        {of && <Why of={of} />}
      </Panel>
      <Answer of={feed}>
        {(v) => (
          <Panel title="Changes under way" flush
            note={v.paused ? <Badge tone="warn">paused</Badge> : v.settings ? `at most ${plural(v.mostOperators ?? 0, "change")} at a time; a silent node is replaced after ${span(v.repairSeconds ?? 0)}` : ""}>
            <Table label="Changes under way" rows={v.operators} id={(o) => o.id} columns={columns}
              empty="Nothing moves: every replica and every leader is where it should be, or waits for its turn." />
            {!!v.operatorsNotShown && <p class="empty">{plural(v.operatorsNotShown, "more change")} under way.</p>}
          </Panel>
        )}
      </Answer>
      <Answer of={events}>
        {(rows) => <Panel title="Last changes" flush><EventsTable rows={rows.slice(0, 20)} empty="Nothing has been moved yet." /></Panel>}
      </Answer>
    </Page>
  );
}
