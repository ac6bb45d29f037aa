package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) deleteCommand() *cobra.Command {
	var f argument.Span
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME KEY, or delete NAME --prefix P | --from A --to B | --all",
		Short: "Delete a key, or a range of keys",
		Long: `Delete a key of the keyspace NAME, or all keys of a range. The command prints how
many keys had a value; a key without a value is no error. Deleted values can still be read with
--at, inside the keyspace's window.

Deleting a range asks first, unless --yes is given. A range is deleted batch by batch, so the
deletion is not atomic: if it is interrupted, a part of the range is deleted.`,
		Example: `  tidemark delete fruit apple
  tidemark delete fruit --prefix app
  tidemark delete fruit --from a --to c --yes`,
		Args:              arguments("NAME KEY, or NAME and a range", 1, 2),
		ValidArgsFunction: a.completeKeyspaces,
	}
	f.Register(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all keys of the keyspace")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete a range without asking")
	for _, flag := range []string{"prefix", "from", "to"} {
		cmd.MarkFlagsMutuallyExclusive("all", flag)
	}
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error {
		spans, err := f.Options()
		if err != nil {
			return err
		}
		ranged := all || len(spans) > 0
		switch {
		case len(args) == 2 && ranged:
			return exit.Usagef("a key and a range are given; use one")
		case len(args) == 2:
			key, err := f.DecodeKey(args[1])
			if err != nil {
				return err
			}
			return a.deleteKey(ctx, args[0], key)
		case !ranged:
			return exit.Usagef("give a key, or a range: --prefix, --from and --to, or --all")
		}
		// A variable of a script that is not set makes an empty prefix.
		if span, err := f.Keys(); err != nil {
			return err
		} else if !all && len(span.Start) == 0 && len(span.End) == 0 {
			return exit.Usagef("%s is every key of the keyspace; if that is meant, use --all", f.String())
		}
		if err := a.confirm(yes, fmt.Sprintf("This deletes every key of the range in keyspace %q.",
			args[0])); err != nil {
			return err
		}
		return a.deleteRange(ctx, args[0], spans)
	})
	return a.printing(a.client(cmd))
}

func (a *app) deleteKey(ctx context.Context, keyspace string, key []byte) error {
	return a.withKeyspace(ctx, keyspace, func(ks *kv.Keyspace) error {
		existed, err := ks.Delete(ctx, key)
		if err != nil {
			return err
		}
		count := uint64(0)
		if existed {
			count = 1
		}
		return a.printDeleted(count)
	})
}

func (a *app) deleteRange(ctx context.Context, keyspace string, spans []kv.SpanOption) error {
	options := []kv.DeleteRangeOption{kv.All()}
	for _, span := range spans {
		options = append(options, span)
	}
	return a.withKeyspace(ctx, keyspace, func(ks *kv.Keyspace) error {
		deleted, err := ks.DeleteRange(ctx, options...)
		if err != nil {
			return fmt.Errorf("delete: %d keys were deleted, then it stopped: %w", deleted, err)
		}
		return a.printDeleted(deleted)
	})
}

func (a *app) printDeleted(count uint64) error {
	list := a.list(output.Column{Name: "deleted", Number: true})
	list.Row(count)
	return list.Flush()
}
