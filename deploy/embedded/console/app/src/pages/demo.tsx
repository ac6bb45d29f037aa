import { post } from "../api";
import { count, micros } from "../format";
import type { Cluster, DemoServer } from "../types";
import { Badge, Do, Panel } from "../ui";

const tone = { running: "good", stopped: "bad", isolated: "warn" } as const;

function Server({ s }: { s: DemoServer }) {
  const name = s.node ? `n${s.node}` : `server ${s.server}`;
  const press = (what: string) => () => post("demo/" + what, { Server: s.server });
  return (
    <li class="server">
      <p><strong>{name}</strong> <Badge tone={tone[s.state]}>{s.state}</Badge></p>
      <p class="quietly mono">{s.address}{s.core ? " · core" : ""}</p>
      <p class="buttons">
        {s.state === "running" && <Do danger label={`stop ${name}`} run={press("stop")}>Stop</Do>}
        {s.state === "running" && <Do label={`isolate ${name}`} run={press("isolate")}>Isolate</Do>}
        {s.state === "stopped" && <Do label={`restart ${name}`} run={press("start")}>Restart</Do>}
        {s.state === "isolated" && <Do label={`reconnect ${name}`} run={press("join")}>Reconnect</Do>}
      </p>
    </li>
  );
}

/** The buttons of a demo: break it, and watch. */
export function DemoPanel({ c }: { c: Cluster }) {
  const load = c.load;
  return (
    <Panel title="Try it" note="this is a demo: break it, and watch what happens">
      <div class="loadrow">
        {load?.running ? (
          <>
            <Do run={() => post("demo/unload")}>Stop the load</Do>
            <p role="status">
              <strong>{count(load.done)}</strong> operations a second, {load.failed === 0 ? "none failed" : `${count(load.failed)} failed`};
              the slowest of the last seconds took {micros(load.slowestMillis * 1000)}.
            </p>
          </>
        ) : (
          <>
            <Do run={() => post("demo/load")}>Start a load</Do>
            <p class="quietly">Clients then read and write a keyspace named demo. Stop a node meanwhile, and see who takes over.</p>
          </>
        )}
      </div>
      <ul class="servers">
        {[...(c.servers ?? [])].sort((a, b) => (a.node ?? 99) - (b.node ?? 99)).map((s) => <Server key={s.server} s={s} />)}
        <li class="server add"><Do run={() => post("demo/add")}>Add a node</Do></li>
      </ul>
    </Panel>
  );
}
