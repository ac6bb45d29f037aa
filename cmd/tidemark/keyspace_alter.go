package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

// limitFlags are the limits of transactions that a keyspace has.
type limitFlags struct {
	age, idle time.Duration
	flags     *pflag.FlagSet
}

// The limits that a keyspace can have.
const minLimit, maxLimit = time.Second, 168 * time.Hour

// register adds the flags; the defaults are said only.
func (f *limitFlags) register(cmd *cobra.Command, age, idle string) {
	flags := cmd.Flags()
	f.flags = flags
	flags.DurationVar(&f.age, "txn-max-age", 0,
		"how long after it began a transaction may hold locks, 1s to 168h (default: "+age+")")
	flags.DurationVar(&f.idle, "txn-max-idle", 0,
		"for how long it may make no call meanwhile, 1s to 168h (default: "+idle+")")
}

// changes are the flags; what was not given is zero.
func (f *limitFlags) changes() (kv.KeyspaceChanges, error) {
	for _, limit := range []struct {
		flag string
		d    time.Duration
	}{{"txn-max-age", f.age}, {"txn-max-idle", f.idle}} {
		switch {
		case !f.flags.Changed(limit.flag):
		case limit.d < minLimit || limit.d > maxLimit:
			return kv.KeyspaceChanges{}, usagef("--%s %s: it is from 1s to 168h", limit.flag, limit.d)
		case limit.d%time.Millisecond != 0:
			return kv.KeyspaceChanges{}, usagef("--%s %s: give whole milliseconds", limit.flag, limit.d)
		}
	}
	return kv.KeyspaceChanges{MaxTransactionAge: f.age, MaxTransactionIdle: f.idle}, nil
}

var limitColumns = []output.Column{{Name: "txn max age"}, {Name: "txn max idle"}}

func limitCells(info kv.KeyspaceInfo) []any {
	return []any{info.MaxTransactionAge, info.MaxTransactionIdle}
}

func (a *app) keyspaceAlterCommand() *cobra.Command {
	var f limitFlags
	cmd := &cobra.Command{
		Use:   "alter NAME [--txn-max-age D] [--txn-max-idle D]",
		Short: "Change the limits of transactions in a keyspace",
		Long: `Change for how long transactions may hold locks of a keyspace. What is not given stays as it is. It
counts for open transactions too, as soon as the nodes have heard of it, which takes a moment.`,
		Example:           `  tidemark keyspace alter fruit --txn-max-idle 30s`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			changes, err := f.changes()
			if err == nil && changes == (kv.KeyspaceChanges{}) {
				err = usagef("say what to change: --txn-max-age, --txn-max-idle")
			}
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := client.AlterKeyspace(ctx, args[0], changes); err != nil {
					return err
				}
				return a.describeKeyspace(ctx, client, args[0])
			})
		}),
	}
	f.register(cmd, "it stays", "it stays")
	return a.client(a.printing(cmd))
}
