import { useFeed } from "../api";
import { bytes, count, plural, span } from "../format";
import type { Coordination as View, Queue } from "../types";
import { Answer, Page, Panel, Table, Tile } from "../ui";
import { MembersTable } from "./nodes";

const Queues = (p: { label: string; rows: Queue[]; empty: string; holder: string }) => (
  <Table label={p.label} rows={p.rows} id={(q) => q.kind + "/" + q.name} empty={p.empty}
    columns={[
      { name: "Name", cell: (q) => <span class="mono">{q.name}</span> },
      { name: "Kind", cell: (q) => q.kind, detail: true },
      { name: p.holder, cell: (q) => <><span class="mono">{q.holder}</span>{q.holders > 1 && ` and ${q.holders - 1} more`}</> },
      { name: "Waiting", cell: (q) => (q.waiting ? plural(q.waiting, "session") : "nobody") },
      { name: "Token", number: true, cell: (q) => q.revision, detail: true },
    ]}
  />
);

export function Coordination() {
  const feed = useFeed<View>("coord");
  return (
    <Page title="Coordination" lead="Locks, leases and elections: the core's etcd-compatible store.">
      <Answer of={feed}>
        {(v) => (
          <>
            {v.unknown && <div class="notice warn" role="alert"><strong>Not all is known.</strong> {v.unknown}</div>}
            {v.more && <div class="notice warn">There are more locks and elections than this page reads: only the oldest sessions are counted.</div>}
            <dl class="tiles five">
              <Tile label="Keys" value={count(v.keys)} />
              <Tile label="Leases" value={count(v.leases)} />
              <Tile label="Watches" value={count(v.watches)} sub="at this server" />
              <Tile label="Revision" value={count(v.revision)} />
              <Tile label="Size" value={bytes(v.bytes)} sub="with its history" />
            </dl>
            <Panel title="Members" flush><MembersTable members={v.members} /></Panel>
            <Panel title="Locks" flush>
              <Queues label="Locks" rows={v.locks} holder="Held by" empty="No lock is held. Try: tidemark lock job -- sleep 60" />
            </Panel>
            <Panel title="Elections" flush>
              <Queues label="Elections" rows={v.elections} holder="Leader" empty="No election is under way. Try: tidemark elect job me" />
            </Panel>
            <Panel title="Leases" flush note={v.leases > v.leaseList.length ? `${v.leaseList.length} of ${v.leases}` : ""}>
              <Table label="Leases" rows={v.leaseList} id={(l) => l.id} empty="No client has a lease."
                columns={[
                  { name: "Lease", cell: (l) => <span class="mono">{l.id}</span> },
                  { name: "Ends in", number: true, cell: (l) => span(l.ttl) },
                  { name: "Granted for", number: true, cell: (l) => span(l.granted), detail: true },
                  { name: "Keys", number: true, cell: (l) => l.keys },
                  { name: "First key", cell: (l) => <span class="mono span">{l.first ?? "–"}</span> },
                ]} />
            </Panel>
          </>
        )}
      </Answer>
    </Page>
  );
}
