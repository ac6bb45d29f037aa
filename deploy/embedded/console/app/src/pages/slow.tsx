import { useFeed } from "../api";
import { clock, count, micros } from "../format";
import type { Slow as View, SlowPart } from "../types";
import { Answer, Badge, NodeLink, Page, PartitionLink, Panel, Table } from "../ui";

/** The parts of a request that took the most, in words. */
function where(parts: SlowPart[]): string {
  const most = [...parts].filter((p) => p.micros > 0).sort((a, b) => b.micros - a.micros).slice(0, 3);
  return most.map((p) => `${p.name} ${micros(p.micros)}`).join(", ") || "–";
}

export function Slow() {
  const feed = useFeed<View>("slow");
  return (
    <Page title="Slow requests" lead="Requests that took long, the latest first, and where their time went.">
      <Answer of={feed}>
        {(v) => (
          <>
            {v.unanswered && <div class="notice warn" role="alert"><strong>Not all is known.</strong> {v.unanswered}</div>}
            <Panel flush title="Latest"
              note={v.nodes.map((n) => `n${n.node}: ${n.thresholdMicros ? `${count(n.count)} over ${micros(n.thresholdMicros)}` : "keeps none"}`).join("; ")}>
              <Table label="Slow requests" rows={v.rows.map((r, i) => ({ ...r, i }))} id={(r) => r.i}
                empty="No request has been slow since the nodes were started."
                columns={[
                  { name: "Time", cell: (r) => <span class="nowrap">{clock(r.began)}</span> },
                  { name: "Took", number: true, cell: (r) => micros(r.micros) },
                  { name: "Request", cell: (r) => <>{r.kind}{r.error && <> <Badge tone="bad">{r.error}</Badge></>}</> },
                  { name: "Where the time went", cell: (r) => <>{where(r.parts)}{r.holder && <span class="quietly"> (lock of <code title={r.holder}>{r.holder.slice(0, 8)}</code>)</span>}</> },
                  { name: "Keyspace", cell: (r) => r.keyspace || "–" },
                  { name: "Key", detail: true, cell: (r) => <code class="span">{r.key}</code> },
                  { name: "Partition", number: true, detail: true, cell: (r) => (r.partition ? <PartitionLink id={r.partition} /> : "–") },
                  { name: "Node", cell: (r) => <NodeLink id={r.node} />, detail: true },
                  { name: "Client", detail: true, cell: (r) => <span class="mono">{r.user || r.client || "–"}</span> },
                ]} />
            </Panel>
          </>
        )}
      </Answer>
    </Page>
  );
}
