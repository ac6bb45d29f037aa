package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) getCommand() *cobra.Command {
	var e argument.Encoding
	var at momentFlag
	var fresh freshFlags
	cmd := &cobra.Command{
		Use:   "get NAME KEY...",
		Short: "Read the values of keys",
		Long: `Read the values of keys from the keyspace NAME.

A key without a value is an error (exit code 3); the values of other keys are printed all the same.
If a value expires, its expiry is shown. With --output raw only the bytes of the values are printed,
without a newline.

With --nearest, --staleness or --any-staleness any replica may answer with its state; --output json
then shows the timestamp of the read, and its age in seconds at most.`,
		Example: `  tidemark get fruit apple
  tidemark get fruit apple pear --output json
  tidemark get fruit apple --at -30s
  tidemark get fruit apple --staleness 5s --output json
  tidemark get pictures cat.png --output raw > cat.png
  tidemark get binary 00ff --hex`,
		Args:              arguments("NAME KEY...", 2, -1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.get(ctx, args[0], args[1:], e, &at, &fresh)
		}),
	}
	e.Register(cmd)
	cmd.Flags().StringVar(&at.text, "at", "", "read the past: "+argument.MomentHelp)
	fresh.register(a, cmd)
	return a.printing(a.client(cmd))
}

func (a *app) get(ctx context.Context, keyspace string, arguments []string, e argument.Encoding,
	at *momentFlag, fresh *freshFlags) error {
	keys := make([][]byte, len(arguments))
	for i, argument := range arguments {
		var err error
		if keys[i], err = e.DecodeKey(argument); err != nil {
			return err
		}
	}
	var options []kv.GetOption
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
		ks := client.Keyspace(keyspace)
		var pairs []kv.Pair
		if len(keys) == 1 {
			pair, err := ks.Get(ctx, keys[0], options...)
			if err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
			pair.Key = keys[0]
			pairs = append(pairs, pair)
		} else {
			var err error
			if pairs, err = ks.BatchGet(ctx, keys, options...); err != nil {
				return err
			}
		}
		if a.format == output.Table {
			a.tell(fresh)
		}
		return a.printPairs(keyspace, pairs, fresh)
	})
}

// printPairs prints the pairs that exist, and reports the keys without a value. A pair that a
// transaction has not committed yet has no version. fresh may be nil.
func (a *app) printPairs(keyspace string, pairs []kv.Pair, fresh *freshFlags) error {
	columns := []output.Column{{Name: "key"}, {Name: "value"}, {Name: "version", Whole: true}}
	expires := slices.ContainsFunc(pairs, func(p kv.Pair) bool { return !p.Expires.IsZero() })
	if expires {
		columns = append(columns, output.Column{Name: "expires", Whole: true})
	}
	list := a.list(append(columns, fresh.columns()...)...)
	if len(pairs) == 1 {
		list.All("--output raw")
	}
	found := 0
	for _, pair := range pairs {
		if !pair.Exists() {
			continue
		}
		found++
		if a.format == output.Raw {
			if _, err := a.out.Write(pair.Value); err != nil {
				return err
			}
			continue
		}
		var version any = pair.Version
		if pair.Version == kv.Uncommitted() {
			version = nil
		}
		row := []any{pair.Key, notNil(pair.Value), version}
		if expires {
			row = append(row, expiryCell(pair.Expires))
		}
		list.Row(append(row, fresh.cells()...)...)
	}
	if found > 0 && a.format != output.Raw {
		if err := list.Flush(); err != nil {
			return err
		}
	}
	if found == len(pairs) {
		return nil
	}
	for _, pair := range pairs {
		if !pair.Exists() {
			a.say("tidemark: get %q in keyspace %q: the key has no value", pair.Key, keyspace)
		}
	}
	return exit.Silent(exit.NotFound)
}

// notNil makes an empty value differ from no value.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}
