import { useFeed } from "../api";
import { By, Heat } from "../heat";
import { bytes, count } from "../format";
import type { Heat as HeatView, Keyspace, PartitionPage } from "../types";
import { Answer, Badge, Choice, Link, NodeLink, Page, PartitionLink, Panel, Place, Select, Table, at, go } from "../ui";

const orders: [string, string][] = [["key", "key"], ["load", "load"], ["reads", "reads"], ["writes", "writes"], ["bytes", "size"]];

export function Partitions({ place }: { place: Place }) {
  const keyspace = place.query.get("keyspace") ?? "";
  const order = place.query.get("order") ?? "load";
  const from = Number(place.query.get("from") ?? 0) || 0;
  const by = (place.query.get("by") as By) ?? "writes";
  const first = place.query.get("first") ?? "";
  const last = place.query.get("last") ?? "";
  const here = (change: Record<string, string | number | undefined>) =>
    at("partitions", { keyspace, order, by, first, last, ...change });
  const heat = useFeed<HeatView>(
    "heat?" + new URLSearchParams({ keyspace, by, from: first, to: last }).toString(),
  );
  const keyspaces = useFeed<Keyspace[]>("keyspaces");
  const list = useFeed<PartitionPage>(
    "partitions?" + new URLSearchParams({ keyspace, order, from: String(from) }).toString(),
  );
  const names: [string, string][] = [["", "all"], ...(keyspaces.data ?? []).map((k) => [k.name, k.name] as [string, string])];
  return (
    <Page
      title="Partitions"
      lead="Keys go down, the last hour goes to the right: where the load is, and when."
      side={
        <>
          <Select label="Keyspace" value={keyspace} options={names} set={(k) => go(here({ keyspace: k, first: "", last: "" }))} />
          <Choice<By> label="What is shown" value={by} options={[["reads", "Reads"], ["writes", "Writes"], ["bytes", "Bytes"]]}
            set={(b) => go(here({ by: b }))} />
        </>
      }
    >
      <Answer of={heat}>
        {(view) => (
          <Panel
            title={`${count(view.partitions)} partition${view.partitions === 1 ? "" : "s"}${first ? ", zoomed" : ""}`}
            note={
              <>
                {view.rows.length < view.partitions && `a row is about ${Math.round(view.partitions / view.rows.length)} partitions `}
                {!!view.silent?.length && `nodes ${view.silent.join(", ")} do not answer `}
                {first && <Link to={here({ first: "", last: "" })}>Show all</Link>}
              </>
            }
          >
            <Heat view={view} by={by}
              zoom={(a, b) =>
                a === b && a.count === 1
                  ? go(at("placement", { why: a.first }))
                  : go(here({ first: a.first, last: b.last }))
              } />
          </Panel>
        )}
      </Answer>
      <Answer of={list}>
        {(page) => (
          <Panel title="List" flush
            note={
              <span class="row">
                {page.total > 0 && `${count(page.from + 1)}–${count(page.from + page.rows.length)} of ${count(page.total)}`}
                <Select label="ordered by" value={order} options={orders} set={(o) => go(here({ order: o, from: undefined }))} />
              </span>
            }>
            <Table
              label="Partitions"
              rows={page.rows}
              id={(p) => p.id}
              empty="There are no partitions here yet."
              columns={[
                { name: "Partition", cell: (p) => <PartitionLink id={p.id} /> },
                { name: "Keyspace", cell: (p) => p.keyspace, detail: true },
                { name: "Keys", cell: (p) => <span class="mono span">{p.span}</span> },
                { name: "Leader", cell: (p) => p.merging ? <Badge tone="warn">merging</Badge> : p.leader ? <NodeLink id={p.leader} /> : <Badge tone="bad">none</Badge> },
                { name: "Replicas", cell: (p) => (p.replicas ?? []).map((r) => (r.learner ? `(n${r.node})` : `n${r.node}`)).join(" "), detail: true },
                { name: "Reads/s", number: true, cell: (p) => count(p.rates.reads) },
                { name: "Writes/s", number: true, cell: (p) => count(p.rates.writes) },
                { name: "Number of keys", number: true, cell: (p) => count(p.keys), detail: true },
                { name: "Size", number: true, cell: (p) => bytes(p.bytes) },
              ]}
            />
            {page.total > page.rows.length && (
              <nav class="pager" aria-label="Pages of the list">
                {page.from > 0 ? <Link to={here({ from: Math.max(0, page.from - 100) })}>Previous</Link> : <span />}
                {page.from + page.rows.length < page.total && <Link to={here({ from: page.from + 100 })}>Next</Link>}
              </nav>
            )}
          </Panel>
        )}
      </Answer>
    </Page>
  );
}
