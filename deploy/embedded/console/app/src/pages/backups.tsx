import { useFeed } from "../api";
import { ago, bytes, count } from "../format";
import type { Backup, Backups as View, Schedule } from "../types";
import { Answer, Badge, Bar, Page, Panel, Table, Tone } from "../ui";

const tones: Record<string, Tone> = { complete: "good", running: "quiet", failed: "bad", cancelling: "warn", cancelled: "quiet" };

export function Backups() {
  const feed = useFeed<View>("backups");
  return (
    <Page title="Backups" lead="Backups and restores that the core carries out, and the schedules by which it begins them.">
      <Answer of={feed}>
        {(v) => (
          <>
            <Panel title="Schedules" flush>
              <Table<Schedule> label="Schedules" rows={v.schedules} id={(s) => s.name}
                empty="There is no schedule: no backup begins by itself. Try: tidemark backup schedule create nightly file:///backups"
                columns={[
                  { name: "Schedule", cell: (s) => s.name },
                  { name: "State", cell: (s) => s.error ? <Badge tone="bad">{s.error}</Badge> : s.logError ? <Badge tone="warn">{s.logError}</Badge> : s.paused ? <Badge tone="warn">paused</Badge> : s.running ? <Badge tone="quiet">running</Badge> : <Badge tone="good">well</Badge> },
                  { name: "Full", cell: (s) => "every " + s.full },
                  { name: "Incremental", cell: (s) => (s.incremental ? "every " + s.incremental : "–"), detail: true },
                  { name: "Newest backup", cell: (s) => ago(s.lastAt) },
                  { name: "Log up to", cell: (s) => (s.log ? ago(s.logAt) : "no log") },
                  { name: "Kept for", cell: (s) => s.retention || "ever", detail: true },
                  { name: "Target", cell: (s) => <span class="mono span">{s.target}</span>, detail: true },
                ]} />
            </Panel>
            <Panel title="Backups and restores" flush>
              <Table<Backup> label="Backups and restores" rows={v.backups} id={(b) => b.id} empty="No backup has been made yet."
                columns={[
                  { name: "Name", cell: (b) => <>{b.id}{b.restore ? " (restore)" : ""}</> },
                  {
                    name: "State",
                    cell: (b) => (
                      <>
                        <Badge tone={tones[b.state] ?? "quiet"}>{b.state}</Badge>{" "}
                        {b.state === "running" && b.units > 0 && <Bar part={b.done / b.units} label={`${b.done} of ${b.units} units`} />}
                        {b.error && <span class="quietly"> {b.error}</span>}
                        {b.state === "running" && b.step && <span class="quietly"> {b.step}</span>}
                      </>
                    ),
                  },
                  { name: "Kind", cell: (b) => (b.restore ? "restore" : b.parent ? "incremental" : "full") + (b.encrypted ? ", encrypted" : ""), detail: true },
                  { name: "Began", cell: (b) => ago(b.began) },
                  { name: "Records", number: true, cell: (b) => count(b.records) },
                  { name: "Data", number: true, cell: (b) => bytes(b.bytes) },
                  { name: "Stored", number: true, cell: (b) => bytes(b.stored), detail: true },
                  { name: "Target", cell: (b) => <span class="mono span">{b.target}</span>, detail: true },
                ]} />
            </Panel>
          </>
        )}
      </Answer>
    </Page>
  );
}
