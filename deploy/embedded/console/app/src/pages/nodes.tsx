import { post, useFeed } from "../api";
import { ago, bytes, count, micros, span } from "../format";
import type { Cluster, Member, Node } from "../types";
import { Answer, Badge, Bar, Column, Do, NodeLink, Page, Panel, Table } from "../ui";

function State({ n }: { n: Node }) {
  if (!n.alive) return <Badge tone="bad">down for {span(n.silentSeconds ?? 0)}</Badge>;
  if (n.clockWrong) return <Badge tone="bad">clock wrong</Badge>;
  if (n.diskFull) return <Badge tone="bad">disk full</Badge>;
  if (n.notReady?.length) return <Badge tone="warn">not ready</Badge>;
  if (n.diskSlow) return <Badge tone="warn">disk slow</Badge>;
  if (n.failed) return <Badge tone="warn">damaged replicas</Badge>;
  if (n.status !== "active") return <Badge tone="warn">{n.status}</Badge>;
  return <Badge tone="good">well</Badge>;
}

export function NodesTable(p: { nodes: Node[]; short?: boolean; admin?: boolean }) {
  const columns: Column<Node>[] = [
    { name: "Node", cell: (n) => <NodeLink id={n.id} /> },
    { name: "State", cell: (n) => <State n={n} /> },
    { name: "Address", cell: (n) => <span class="mono">{n.address}</span>, detail: true },
    { name: "Leads", number: true, cell: (n) => count(n.leaders) },
    { name: "Replicas", number: true, cell: (n) => count(n.replicas) },
    { name: "Reads/s", number: true, cell: (n) => count(n.rates.reads) },
    { name: "Writes/s", number: true, cell: (n) => count(n.rates.writes) },
    {
      name: "Disk",
      cell: (n) => (
        <span class="disk">
          <Bar part={n.diskUsed / Math.max(1, n.diskUsed + n.diskFree)} tone={n.diskFull ? "bad" : undefined}
            label={`${bytes(n.diskUsed)} used, ${bytes(n.diskFree)} free`} />
          {bytes(n.diskUsed)}
        </span>
      ),
    },
    { name: "Log sync", number: true, detail: true, cell: (n) => micros(n.syncMicros ?? 0) },
  ];
  if (!p.short) {
    columns.push(
      { name: "Place", detail: true, cell: (n) => [n.region, n.zone, ...(n.tags ?? [])].filter(Boolean).join(", ") || "–" },
      { name: "Up since", detail: true, cell: (n) => (n.alive ? ago(n.started) : "–") },
      { name: "Version", detail: true, cell: (n) => n.version },
    );
  }
  if (p.admin) {
    columns.push({
      name: "Change",
      cell: (n) =>
        n.status === "active" ? (
          <Do label={`drain node ${n.id}`} ask={`Move all leaderships off n${n.id}?`}
            run={() => post("do/drain", { Node: n.id })}>Drain</Do>
        ) : n.status === "draining" ? (
          <Do label={`activate node ${n.id}`} run={() => post("do/activate", { Node: n.id })}>Activate</Do>
        ) : null,
    });
  }
  return <Table label="Nodes" rows={p.nodes} columns={columns} id={(n) => n.id} empty="No data node has joined yet." />;
}

export function MembersTable({ members }: { members: Member[] }) {
  return (
    <Table
      label="Members of the core"
      rows={members}
      id={(m) => m.id}
      empty="The core has no members that are known."
      columns={[
        { name: "Member", cell: (m) => m.id },
        { name: "Address", cell: (m) => <span class="mono">{m.address}</span> },
        {
          name: "State",
          cell: (m) =>
            !m.answers ? <Badge tone="bad">does not answer</Badge>
            : m.snapshot ? <Badge tone="warn">receives the state</Badge>
            : m.behind > 64 ? <Badge tone="warn">{count(m.behind)} entries behind</Badge>
            : <Badge tone="good">well</Badge>,
        },
        { name: "Role", cell: (m) => m.role, detail: true },
        { name: "Leads", cell: (m) => [m.leader && "core", m.leadsCoordination && "coordination"].filter(Boolean).join(", ") || "–" },
        { name: "Log sync", number: true, cell: (m) => micros(m.syncMicros ?? 0), detail: true },
      ]}
    />
  );
}

export function Nodes({ admin }: { admin: boolean }) {
  const feed = useFeed<Cluster>("cluster");
  return (
    <Page title="Nodes" lead="Data nodes hold the replicas of partitions; the core decides where they are.">
      <Answer of={feed}>
        {(c) => (
          <>
            {c.nodes.some((n) => n.notReady?.length) && (
              <ul class="problems">
                {c.nodes.flatMap((n) => (n.notReady ?? []).map((why) => (
                  <li key={n.id + why} class="warn"><strong>n{n.id}</strong> {why}</li>
                )))}
              </ul>
            )}
            <Panel title="Data nodes" flush><NodesTable nodes={c.nodes} admin={admin} /></Panel>
            <Panel title="Members of the core" flush><MembersTable members={c.core} /></Panel>
          </>
        )}
      </Answer>
    </Page>
  );
}
