package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) debugCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "debug",
		Short: "Look into a running cluster",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.debugTxnsCommand(), a.debugZipCommand())
	return root
}

func (a *app) debugTxnsCommand() *cobra.Command {
	var most, waiters int
	cmd := &cobra.Command{
		Use:   "txns [NAME]",
		Short: "List the transactions that hold locks, and the requests that wait",
		Long: `List the transactions that hold locks in the keyspace NAME, or in all keyspaces, the
oldest locks first. Below each transaction are the requests that wait for it, in the order in which
they came. A transaction with locks in several partitions has a row for each partition.

The row of a transaction shows one of its keys (or the start of a span), for how long that key has
been locked, how many keys and spans of the partition it has locked, and when it began (the older of
two wins). If the record of the transaction lies in the partition, the row shows the state of the
record; a record without locks in its own partition is not shown. The row of a waiting request shows
the key that it wants, for how long it has waited, and for which transaction; a request without a
transaction has no id.

The leaders of the partitions are asked at different moments, so the rows need not fit together. If
partitions do not answer within their share of --timeout, stderr names them with the reasons; the
rows of the others are listed all the same, and the exit code is not 0.`,
		Example: `  tidemark debug txns
  tidemark debug txns fruit --output json`,
		Args:              arguments("at most a NAME", 0, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if most < 1 || waiters < 0 {
				return exit.Usagef("--max is at least 1, and --waiters at least 0")
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.debugTxns(ctx, client, name, most, waiters)
			})
		}),
	}
	cmd.Flags().IntVar(&most, "max", 100,
		"rows with locks to list at most, those with the oldest locks")
	cmd.Flags().IntVar(&waiters, "waiters", 10, "waits to list for each of them, at most")
	return a.printing(a.client(cmd))
}

func (a *app) debugTxns(ctx context.Context, client *kv.Client, keyspace string,
	most, waiters int) error {
	found, more, err := admin.New(client).LiveTransactions(ctx, keyspace, most)
	return a.printFound(found, more, waiters, err)
}

func (a *app) printFound(found []admin.LiveTransaction, more bool, waiters int,
	failed error) error {
	return a.unansweredAfter(failed, func() error { return a.printTxns(found, more, waiters) })
}

// unansweredAfter prints the results, and reports the partitions that did not answer.
func (a *app) unansweredAfter(failed error, print func() error) error {
	var partitions *admin.UnansweredError
	var nodes *admin.UnansweredNodesError
	var unanswered []*kv.Error
	switch {
	case errors.As(failed, &partitions):
		unanswered = partitions.Partitions
	case errors.As(failed, &nodes):
		unanswered = nodes.Nodes
	case failed != nil:
		return failed
	}
	if err := print(); err != nil {
		return err
	}
	if failed == nil {
		return nil
	}
	for _, e := range unanswered {
		a.say("tidemark: %s", exit.Message(e))
	}
	return exit.Silent(exit.OfClient(failed))
}

func (a *app) printTxns(found []admin.LiveTransaction, more bool, waiters int) error {
	list := a.list(
		output.Column{Name: "transaction", Whole: true}, output.Column{Name: "does"},
		output.Column{Name: "key"}, output.Column{Name: "for", Number: true},
		output.Column{Name: "keyspace"}, output.Column{Name: "partition", Number: true},
		output.Column{Name: "locks", Number: true},
		output.Column{Name: "spans", Number: true},
		output.Column{Name: "began", Detail: true}, output.Column{Name: "state"},
		output.Column{Name: "waits for", Detail: true, Whole: true})
	notShown := 0
	for _, x := range found {
		does := "lock"
		if x.Locks == 0 && x.Spans > 0 {
			does = "hold spans"
		}
		list.Row(x.ID, does, x.Key, x.OldestLock.Round(time.Millisecond), x.Keyspace, x.Partition,
			x.Locks, x.Spans, x.Begun, orNone(x.State), nil)
		for i, w := range x.Waiters {
			if i == waiters {
				notShown += len(x.Waiters) - i
				break
			}
			does := "wait to read"
			if w.Write {
				does = "wait to write"
			}
			list.Row(orNone(w.Transaction), does, w.Key, w.Waited.Round(time.Millisecond),
				x.Keyspace, x.Partition, nil, nil, nil, nil, x.ID)
		}
	}
	if err := list.Flush(); err != nil {
		return err
	}
	if notShown > 0 {
		a.say("%d more wait; --waiters shows more of them", notShown)
	}
	if more {
		a.say("there are more rows with locks; --max shows more of them")
	}
	return nil
}
