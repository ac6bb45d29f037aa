import { useFeed } from "../api";
import { bytes, count, span } from "../format";
import type { Keyspace } from "../types";
import { Answer, Badge, Link, Page, Panel, Table, at } from "../ui";

export function Keyspaces() {
  const feed = useFeed<Keyspace[]>("keyspaces");
  return (
    <Page title="Keyspaces" lead="A keyspace is a named set of keys with its own partitioning and replication.">
      <Answer of={feed}>
        {(rows) => (
          <Panel flush>
            <Table
              label="Keyspaces"
              rows={rows}
              id={(k) => k.name}
              empty="There is no keyspace yet. Make one with: tidemark keyspace create fruit"
              columns={[
                { name: "Keyspace", cell: (k) => <Link to={at("partitions", { keyspace: k.name })}>{k.name}</Link> },
                { name: "State", cell: (k) => <Badge tone={k.state === "ready" || k.state === "active" ? "good" : "warn"}>{k.waitingFor ? `${k.state}: ${k.waitingFor}` : k.state}</Badge> },
                { name: "Partitioning", cell: (k) => k.partitioning, detail: true },
                { name: "Partitions", number: true, cell: (k) => count(k.partitions) },
                { name: "Copies", number: true, cell: (k) => k.replicas },
                { name: "Keys", number: true, cell: (k) => count(k.keys) },
                { name: "Size", number: true, cell: (k) => bytes(k.bytes) },
                { name: "Reads/s", number: true, cell: (k) => count(k.rates.reads) },
                { name: "Writes/s", number: true, cell: (k) => count(k.rates.writes) },
                { name: "History", cell: (k) => span(k.gcSeconds), detail: true },
                { name: "Placement", cell: (k) => k.placement || "anywhere", detail: true },
                { name: "Why", cell: (k) => <Link to={at("placement", { why: k.name })} label={`explain ${k.name}`}>explain</Link>, detail: true },
              ]}
            />
          </Panel>
        )}
      </Answer>
    </Page>
  );
}
