package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) txnListCommand() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the open transactions that hold locks",
		Long: `List the transactions that hold locks in the keyspace NAME, or in all keyspaces, once
each; the transaction with the oldest lock comes first. The list shows how long ago the attempt
began, for how long the application has made no call in it, how many keys it has locked, how many
spans it holds, how many requests wait for them, and from where the client is connected. --output
json and tsv also have the partition that decides about the transaction, the key that it has locked
for longest, the begin of its first attempt, and the waiting transactions.

--txn-max-age and --txn-max-idle of keyspaces limit the age and the idle time. The idle time is as
of the client's last heartbeat, about a second ago. It is empty while the application is busy, and
for a transaction that has just begun. With NAME it is known only for transactions whose first lock
is in that keyspace.

tidemark debug txns has a row for each partition of a transaction, and a row for each waiting
request. If partitions do not answer, stderr names them with the reasons; the others are listed all
the same, and the exit code is not 0.`,
		Example: `  tidemark txn list
  tidemark txn list fruit --output json`,
		Args:              arguments("at most a NAME", 0, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if most < 1 {
				return exit.Usagef("--max is at least 1")
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				found, more, err := admin.New(client).Transactions(ctx, name, most)
				return a.unansweredAfter(err, func() error { return a.printTransactions(found, more) })
			})
		}),
	}
	cmd.Flags().IntVar(&most, "max", 100, "transactions to list at most")
	return a.printing(a.client(cmd))
}

func (a *app) printTransactions(found []admin.OpenTransaction, more bool) error {
	columns := []output.Column{{Name: "transaction"}, {Name: "age", Number: true},
		{Name: "idle", Number: true},
		{Name: "locks", Number: true}, {Name: "spans", Number: true},
		{Name: "waiting", Number: true}, {Name: "state"}, {Name: "client"}}
	wide := a.format != output.Table
	if wide {
		columns = append(columns, output.Column{Name: "keyspace"},
			output.Column{Name: "partition", Number: true},
			output.Column{Name: "partitions", Number: true}, output.Column{Name: "key"},
			output.Column{Name: "key keyspace"},
			output.Column{Name: "held", Number: true}, output.Column{Name: "began"},
			output.Column{Name: "waiters"})
	}
	list := a.list(columns...)
	for _, x := range found {
		cells := []any{x.ID, x.Age.Round(time.Millisecond), idleCell(x.Idle), x.Locks, x.Spans,
			len(x.Waiters),
			orNone(x.State), orNone(x.ClientAddress)}
		if wide {
			waiters := make([]string, len(x.Waiters))
			for i, w := range x.Waiters {
				if waiters[i] = w.Transaction; w.Transaction == "" {
					waiters[i] = "no transaction"
				}
			}
			cells = append(cells, orNone(x.Keyspace), x.Partition, x.Partitions, x.Key, x.KeyKeyspace,
				x.OldestLock.Round(time.Millisecond), x.Begun, waiters)
		}
		list.Row(cells...)
	}
	if err := list.Flush(); err != nil {
		return err
	}
	if more {
		a.say("there are more transactions; --max shows more of them")
	}
	return nil
}

// idleCell returns the cell of an idle time. The cell is empty if the time is not known.
func idleCell(idle time.Duration) any {
	if idle == 0 {
		return nil
	}
	return idle.Round(time.Millisecond)
}

func (a *app) txnAbortCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "abort ID",
		Short: "Abort an open transaction of any client",
		Long: `Abort the transaction with an ID, as tidemark txn list shows it, so that others get
its locks. Its client is told why; kv.Client.Update runs its function again, with another ID.

The command prints the outcome of the transaction, and may be repeated. If the transaction was
committed before, it stays committed, and the exit code is 1. If no partition knows a lock of the
transaction, because it has ended or has locked nothing, the exit code is 3.`,
		Example: `  tidemark txn abort 6f0c1e1f2b7d4a55a2b3c4d5ffffffff`,
		Args:    arguments("an ID", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				end, err := admin.New(client).AbortTransaction(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printEnd(args[0], end)
			})
		}),
	}))
}

// printEnd prints the result of aborting a transaction.
func (a *app) printEnd(id string, end admin.TransactionEnd) error {
	if end.Committed {
		return fmt.Errorf("transaction %s was committed at %s, before it could be aborted", id, end.At)
	}
	if end.Already {
		a.say("tidemark: transaction %s was aborted already", id)
	}
	list := a.list(output.Column{Name: "transaction"}, output.Column{Name: "state"},
		output.Column{Name: "because"})
	list.Row(id, "aborted", end.Reason)
	return list.Flush()
}
