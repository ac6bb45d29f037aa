package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) countCommand() *cobra.Command {
	var f argument.Span
	var at momentFlag
	var fresh freshFlags
	cmd := &cobra.Command{
		Use:   "count NAME",
		Short: "Count keys",
		Long: `Count the keys of the keyspace NAME at one timestamp. The servers count; no keys are
sent. With --nearest, --staleness or --any-staleness any replicas may count; --output json shows the
timestamp.`,
		Example: `  tidemark count fruit
  tidemark count goapi --prefix 'pkg net/http'
  tidemark count fruit --at -5m --output raw
  tidemark count fruit --nearest`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.count(ctx, args[0], f, &at, &fresh)
		}),
	}
	f.Register(cmd)
	cmd.Flags().StringVar(&at.text, "at", "", "count in the past: "+argument.MomentHelp)
	fresh.register(a, cmd)
	return a.printing(a.client(cmd))
}

func (a *app) count(ctx context.Context, keyspace string, f argument.Span, at *momentFlag,
	fresh *freshFlags) error {
	spans, err := f.Options()
	if err != nil {
		return err
	}
	var options []kv.CountOption
	for _, span := range spans {
		options = append(options, span)
	}
	if err := at.parse(); err != nil {
		return err
	}
	replicas, err := fresh.options()
	if err != nil {
		return err
	}
	for _, o := range replicas {
		options = append(options, o)
	}
	return a.withClient(ctx, func(client *kv.Client) error {
		if at.given() {
			moment, err := at.at(ctx, client)
			if err != nil {
				return err
			}
			options = append(options, kv.At(moment))
		}
		count, err := client.Keyspace(keyspace).Count(ctx, options...)
		if err != nil {
			return err
		}
		if a.format == output.Table {
			a.tell(fresh)
		}
		return a.printCount(count, fresh)
	})
}

// printCount prints a number of keys. fresh may be nil.
func (a *app) printCount(count uint64, fresh *freshFlags) error {
	list := a.list(append([]output.Column{{Name: "count", Number: true}}, fresh.columns()...)...)
	list.Row(append([]any{count}, fresh.cells()...)...)
	return list.Flush()
}
