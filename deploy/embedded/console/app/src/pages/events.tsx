import { useFeed } from "../api";
import { bytes, clock, micros } from "../format";
import type { Event } from "../types";
import { Answer, NodeLink, Page, PartitionLink, Panel, Place, Table } from "../ui";

export function EventsTable({ rows, empty }: { rows: Event[]; empty: string }) {
  return (
    <Table
      label="Events"
      rows={rows}
      id={(e) => e.number}
      empty={empty}
      columns={[
        { name: "Time", cell: (e) => <span class="nowrap">{clock(e.at)}</span> },
        { name: "Kind", cell: (e) => <span class="nowrap">{e.kind}</span> },
        { name: "Partition", cell: (e) => (e.partition ? <PartitionLink id={e.partition} /> : "–"), number: true },
        {
          name: "Nodes", detail: true,
          cell: (e) => (
            <span class="nowrap">
              {e.from ? <NodeLink id={e.from} /> : null}
              {e.from && e.to ? " → " : null}
              {e.to ? <NodeLink id={e.to} /> : null}
              {e.leader && !e.from && !e.to ? <NodeLink id={e.leader} /> : null}
            </span>
          ),
        },
        {
          name: "What and why",
          cell: (e) => (
            <>
              {e.reason}
              {e.outcome && (e.reason ? <span class="quietly"> — {e.outcome}</span> : e.outcome)}
            </>
          ),
        },
        { name: "Took", number: true, detail: true, cell: (e) => (e.millis ? micros(e.millis * 1000) : "–") },
        { name: "Copied", number: true, detail: true, cell: (e) => (e.bytes ? bytes(e.bytes) : "–") },
      ]}
    />
  );
}

export function Events({ place }: { place: Place }) {
  const node = place.query.get("node") ?? "";
  const partition = place.query.get("partition") ?? "";
  const feed = useFeed<Event[]>("events?" + new URLSearchParams({ node, partition }).toString());
  return (
    <Page title="Events" lead="What placement has done, the newest first: nodes, leaders, replicas, splits and merges.">
      <Answer of={feed}>
        {(rows) => <Panel flush><EventsTable rows={rows} empty="Nothing has happened yet." /></Panel>}
      </Answer>
    </Page>
  );
}
