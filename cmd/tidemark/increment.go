package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) incrementCommand() *cobra.Command {
	var e argument.Encoding
	var by int64
	var ttl ttlFlag
	cmd := &cobra.Command{
		Use:   "increment NAME KEY",
		Short: "Add to the number that a key holds",
		Long: `Add to the number that a key of the keyspace NAME has, and print the sum; with
--output raw only the sum. A number is a value like 42 or -7: decimal digits as text, a whole number
of 64 bits with a sign; put can write one. A key without a value counts as 0.

The increment takes effect once, even if it is sent again. If the key has another value, or the sum
does not fit into 64 bits, nothing is changed, and the exit code is 2.`,
		Example: `  tidemark increment fruit visits
  tidemark increment fruit stock --by -3
  next=$(tidemark increment fruit serial --output raw)`,
		Args:              arguments("NAME KEY", 2, 2),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			key, err := e.DecodeKey(args[1])
			if err != nil {
				return err
			}
			options, err := ttl.options()
			if err != nil {
				return err
			}
			return a.withKeyspace(ctx, args[0], func(ks *kv.Keyspace) error {
				sum, version, err := ks.Increment(ctx, key, by, options...)
				if err != nil {
					return err
				}
				return a.printSum(sum, version)
			})
		}),
	}
	e.Register(cmd)
	cmd.Flags().Int64Var(&by, "by", 1, "how much to add; it may be negative")
	ttl.register(cmd)
	return a.printing(a.client(cmd))
}

// printSum prints the result of an increment. Inside a transaction it has no version yet.
func (a *app) printSum(sum int64, version kv.Timestamp) error {
	columns := []output.Column{{Name: "value", Number: true}}
	row := []any{sum}
	if a.format != output.Raw {
		columns = append(columns, output.Column{Name: "version", Whole: true})
		if version == kv.Uncommitted() {
			row = append(row, nil)
		} else {
			row = append(row, version)
		}
	}
	list := a.list(columns...)
	list.Row(row...)
	return list.Flush()
}
