import { post, useFeed } from "../api";
import { count, micros, plural } from "../format";
import type { Transaction, Transactions as View } from "../types";
import { Answer, Badge, Column, Do, Page, Panel, Table } from "../ui";

const millis = (n: number) => micros(n * 1000);
const short = (id: string) => id.slice(0, 8);

/** Who waits for whom: a holder with those who wait behind. */
function Waits({ rows }: { rows: Transaction[] }) {
  const holders = rows.filter((t) => t.waiters?.length);
  if (holders.length === 0) return <p class="empty">Nobody waits for a lock.</p>;
  return (
    <ul class="waits">
      {holders.map((t) => (
        <li key={t.id}>
          <p>
            <code title={t.id}>{short(t.id)}</code> holds {plural(t.locks, "lock")} in {t.keyspace}
            {t.client ? <> for the client at <span class="mono">{t.client}</span></> : null}
          </p>
          <ul>
            {t.waiters!.map((w, i) => (
              <li key={i}>
                {w.transaction ? <code title={w.transaction}>{short(w.transaction)}</code> : "a single request"} has waited{" "}
                {millis(w.millis)} to {w.write ? "write" : "read"} <code>{w.key}</code>
              </li>
            ))}
            {!!t.waitersNotShown && <li>and {t.waitersNotShown} more</li>}
          </ul>
        </li>
      ))}
    </ul>
  );
}

export function Transactions({ admin }: { admin: boolean }) {
  const feed = useFeed<View>("txns");
  const columns: Column<Transaction>[] = [
    { name: "Transaction", cell: (t) => <code title={t.id}>{short(t.id)}</code> },
    { name: "State", cell: (t) => <Badge tone={t.state === "pending" ? "good" : "quiet"}>{t.state || "just begun"}</Badge> },
    { name: "Keyspace", cell: (t) => t.keyspace },
    { name: "Locks", number: true, cell: (t) => count(t.locks + (t.spans ?? 0)) },
    { name: "Partitions", number: true, cell: (t) => t.partitions, detail: true },
    { name: "Oldest lock", cell: (t) => <><code>{t.key}</code> for {millis(t.oldestMillis)}</> },
    { name: "Age", number: true, cell: (t) => millis(t.ageMillis), detail: true },
    { name: "Idle", number: true, cell: (t) => (t.idleMillis ? millis(t.idleMillis) : "–"), detail: true },
    { name: "Wait for it", number: true, cell: (t) => (t.waiters?.length ?? 0) + (t.waitersNotShown ?? 0) || "–" },
    { name: "Client", cell: (t) => <span class="mono">{t.client || "gone"}</span>, detail: true },
  ];
  if (admin)
    columns.push({
      name: "Stop",
      cell: (t) => (
        <Do danger label={`abort transaction ${short(t.id)}`} ask="Abort it?"
          run={() => post("do/abort-transaction", { Transaction: t.id })}>Abort</Do>
      ),
    });
  return (
    <Page title="Transactions" lead="Transactions that hold locks at present, those with the oldest locks first.">
      <Answer of={feed}>
        {(v) => (
          <>
            {v.unanswered && <div class="notice warn"><strong>Not all is known.</strong> {v.unanswered}</div>}
            <Panel title="Live" flush note={v.more ? "the oldest ones; there are more" : ""}>
              <Table label="Live transactions" rows={v.rows} id={(t) => t.id} columns={columns}
                empty="No transaction holds a lock just now. Short ones come and go between two looks." />
            </Panel>
            <Panel title="Who waits for whom"><Waits rows={v.rows} /></Panel>
          </>
        )}
      </Answer>
    </Page>
  );
}
