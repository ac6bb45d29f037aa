package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) txnAbortCommand() *cobra.Command {
	return a.printing(a.client(&cobra.Command{
		Use:   "abort ID",
		Short: "Abort an open transaction of any client",
		Long: `Abort the transaction that has an ID, as tidemark txn list shows it, so that others get its locks.
Its client is told why; what kv.Client.Update runs is run again, with another ID.

It says what became of the transaction, and may be repeated. If the transaction has been committed
before, it stays so, and the exit code is 1. If no partition knows a lock of it, so that it has
ended or has locked nothing, the code is 3.`,
		Example: `  tidemark txn abort 6f0c1e1f2b7d4a55a2b3c4d5ffffffff`,
		Args:    arguments("an ID", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				end, err := client.AbortTransaction(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printEnd(args[0], end)
			})
		}),
	}))
}

// printEnd says what became of a transaction that was to be aborted.
func (a *app) printEnd(id string, end kv.TransactionEnd) error {
	if end.Committed {
		return fmt.Errorf("transaction %s was committed at %s, before it could be aborted", id, end.At)
	}
	if end.Already {
		a.say("tidemark: transaction %s was aborted already", id)
	}
	list := a.list(output.Column{Name: "transaction"}, output.Column{Name: "state"}, output.Column{Name: "because"})
	list.Row(id, "aborted", end.Reason)
	return list.Flush()
}
