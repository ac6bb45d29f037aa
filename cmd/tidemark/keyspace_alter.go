package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
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

// options are those of the flags that were given.
func (f *limitFlags) options() (options []kv.LimitOption, err error) {
	for _, limit := range []struct {
		flag   string
		d      time.Duration
		option func(time.Duration) kv.LimitOption
	}{
		{"txn-max-age", f.age, kv.MaxTransactionAge},
		{"txn-max-idle", f.idle, kv.MaxTransactionIdle},
	} {
		switch {
		case !f.flags.Changed(limit.flag):
			continue
		case limit.d < minLimit || limit.d > maxLimit:
			return nil, exit.Usagef("--%s %s: it is from 1s to 168h", limit.flag, limit.d)
		case limit.d%time.Millisecond != 0:
			return nil, exit.Usagef("--%s %s: give whole milliseconds", limit.flag, limit.d)
		}
		options = append(options, limit.option(limit.d))
	}
	return options, nil
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
		Long: `Change for how long transactions may hold locks of a keyspace. What is not given stays as
it is. It counts for open transactions too, as soon as the nodes have heard of it, which takes a
moment.`,
		Example:           `  tidemark keyspace alter fruit --txn-max-idle 30s`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			limits, err := f.options()
			if err == nil && len(limits) == 0 {
				err = exit.Usagef("say what to change: --txn-max-age, --txn-max-idle")
			}
			if err != nil {
				return err
			}
			changes := make([]kv.AlterOption, len(limits))
			for i, limit := range limits {
				changes[i] = limit
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := client.AlterKeyspace(ctx, args[0], changes...); err != nil {
					return err
				}
				return a.describeKeyspace(ctx, client, args[0])
			})
		}),
	}
	f.register(cmd, "it stays", "it stays")
	return a.client(a.printing(cmd))
}
