import { useFeed } from "../api";
import { Chart } from "../chart";
import { bytes, count, micros, plural } from "../format";
import type { Cluster, History } from "../types";
import { Answer, Bar, Link, Page, Panel, Tile, at } from "../ui";
import { DemoPanel } from "./demo";
import { NodesTable } from "./nodes";

/** One sentence about the state of the cluster. */
export function verdict(c: Cluster): { tone: "good" | "warn" | "bad"; text: string } {
  const bad = c.problems.filter((p) => p.bad).length;
  if (bad > 0) return { tone: "bad", text: "Something cannot be used." };
  if (!c.ready) return { tone: "bad", text: "The server that answers is not ready." };
  if (c.unknown) return { tone: "bad", text: "The core does not answer." };
  if (c.problems.length > 0)
    return { tone: "warn", text: `Everything is served, and ${plural(c.problems.length, "problem")} ${c.problems.length === 1 ? "needs" : "need"} attention.` };
  if (c.paused) return { tone: "warn", text: "Everything is served. Placement is paused." };
  return { tone: "good", text: "Everything is well." };
}

export function Problems({ c }: { c: Cluster }) {
  const lines: { kind: string; text: string; bad: boolean }[] = [...c.problems];
  if (c.waitingFor) lines.unshift({ kind: "not ready", text: c.waitingFor, bad: true });
  if (c.unknown) lines.unshift({ kind: "not known", text: c.unknown, bad: true });
  if (c.paused)
    lines.push({ kind: "paused", bad: false,
      text: "placement is paused: no replica and no leader is moved, not even for a repair" });
  if (lines.length === 0) return null;
  return (
    <ul class="problems">
      {lines.map((p) => (
        <li key={p.kind + p.text} class={p.bad ? "bad" : "warn"}>
          <strong>{p.kind}</strong> {p.text}
        </li>
      ))}
    </ul>
  );
}

/** The load of the last hour. */
function Charts() {
  const { data: h } = useFeed<History>("history");
  if (!h) return null;
  const of = { begin: h.begin, step: h.step };
  return (
    <div class="charts">
      <Chart title="Requests a second" {...of} format={count}
        series={[{ name: "writes", values: h.writes }, { name: "reads", values: h.reads, second: true }]} />
      <Chart title="Time of reads at the server" {...of} format={micros} gaps
        series={[{ name: "p99", values: h.readP99 }, { name: "median", values: h.readP50, second: true }]} />
      <Chart title="Time of writes at the server" {...of} format={micros} gaps
        series={[{ name: "p99", values: h.writeP99 }, { name: "median", values: h.writeP50, second: true }]} />
    </div>
  );
}

export function Overview({ demo }: { demo: boolean }) {
  const feed = useFeed<Cluster>("cluster");
  return (
    <Page title="Overview">
      <Answer of={feed}>
        {(c) => {
          const v = verdict(c);
          const up = c.nodes.filter((n) => n.alive).length;
          const used = c.nodes.reduce((sum, n) => sum + n.diskUsed, 0);
          const free = c.nodes.reduce((sum, n) => sum + (n.alive ? n.diskFree : 0), 0);
          const clocks = c.nodes.filter((n) => n.alive && n.clockWrong).length;
          const versions = [...new Set(c.nodes.filter((n) => n.alive).map((n) => n.version))];
          return (
            <>
              <div class={"verdict " + v.tone} role="status">
                <span class="dot" aria-hidden="true" />
                <p>{v.text}</p>
              </div>
              <Problems c={c} />
              {demo && c.servers && <DemoPanel c={c} />}
              <dl class="tiles">
                <Tile label="Reads" value={count(c.rates.reads)} unit="/s" sub={bytes(c.rates.readBytes) + "/s"} />
                <Tile label="Writes" value={count(c.rates.writes)} unit="/s" sub={bytes(c.rates.writtenBytes) + "/s"} />
                <Tile label="Nodes" value={up} unit={`of ${c.nodes.length}`} tone={up < c.nodes.length ? "warn" : "quiet"}
                  sub={<Link to={at("nodes")}>{c.core.length === 1 ? "1 member of the core" : `${c.core.length} members of the core`}</Link>} />
                <Tile label="Partitions" value={count(c.partitions)} sub={<Link to={at("keyspaces")}>{plural(c.keyspaces, "keyspace")}</Link>} />
                <Tile label="Data on disk" value={bytes(used)}
                  sub={<><Bar part={used / Math.max(1, used + free)} label={`${bytes(used)} used, ${bytes(free)} free`} /> {bytes(free)} free</>} />
                <Tile label="Clocks" value={clocks === 0 ? "in order" : `${clocks} wrong`} tone={clocks ? "bad" : "quiet"}
                  sub={clocks ? "those nodes serve nothing" : "on every node"} />
                <Tile label="Changes" value={c.operators} unit="under way" sub={<Link to={at("placement")}>placement</Link>} />
                <Tile label="Version" value={versions.length === 1 ? versions[0] : plural(versions.length, "version")}
                  sub={c.release.target ? `${c.release.target} can be finalised` : c.release.release} />
              </dl>
              <Charts />
              <Panel title="Nodes" flush>
                <NodesTable nodes={c.nodes} short />
              </Panel>
            </>
          );
        }}
      </Answer>
    </Page>
  );
}
