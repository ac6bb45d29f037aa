package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
)

type scanFlags struct {
	argument.Span
	reverse, keysOnly bool
	limit             int
	at                momentFlag
	fresh             freshFlags
}

func (a *app) scanCommand() *cobra.Command {
	var f scanFlags
	cmd := &cobra.Command{
		Use:   "scan NAME",
		Short: "Show keys and values in key order",
		Long: `Show keys and values of the keyspace NAME in key order, at one timestamp.

Rows are printed as they come, in constant memory. With --output tsv or json they have the format
that load reads. json also shows when a value expires.

With --nearest, --staleness or --any-staleness any replicas may answer with their state; the
timestamp of the read, and its age, are printed on stderr.`,
		Example: `  tidemark scan fruit
  tidemark scan goapi --prefix 'pkg net/http, func ' --limit 5 --reverse
  tidemark scan goapi --from 'pkg slices' --to 'pkg sort' --keys-only
  tidemark scan fruit --at -30s --output json
  tidemark scan fruit --staleness 5s`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.scan(ctx, args[0], &f)
		}),
	}
	f.Span.Register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.reverse, "reverse", false, "from the highest key down")
	flags.IntVar(&f.limit, "limit", 0, "at most this many rows; 0 is all")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "leave the values out")
	flags.StringVar(&f.at.text, "at", "", "read the past: "+argument.MomentHelp)
	f.fresh.register(a, cmd)
	return a.printing(a.client(cmd))
}

func (f *scanFlags) scanOptions() (options []kv.ScanOption, err error) {
	spans, err := f.Options()
	if err != nil {
		return nil, err
	}
	for _, span := range spans {
		options = append(options, span)
	}
	if f.limit < 0 {
		return nil, exit.Usagef("--limit %d: give the number of rows, or 0 for all", f.limit)
	}
	if f.limit > 0 {
		options = append(options, kv.Limit(f.limit))
	}
	if f.reverse {
		options = append(options, kv.Reverse())
	}
	if f.keysOnly {
		options = append(options, kv.KeysOnly())
	}
	if err := f.at.parse(); err != nil {
		return nil, err
	}
	replicas, err := f.fresh.options()
	if err != nil {
		return nil, err
	}
	for _, o := range replicas {
		options = append(options, o)
	}
	return options, nil
}

func (a *app) scan(ctx context.Context, keyspace string, f *scanFlags) error {
	options, err := f.scanOptions()
	if err != nil {
		return err
	}
	return a.withClient(ctx, func(client *kv.Client) error {
		if f.at.given() {
			moment, err := f.at.at(ctx, client)
			if err != nil {
				return err
			}
			options = append(options, kv.At(moment))
		}
		ks := client.Keyspace(keyspace)
		rows := output.NewRows(a.out, a.format, f.keysOnly).On(a.screen())
		count, last, err := each(ks.Scan(ctx, options...), func(pair kv.Pair) error {
			return rows.Write(pair.Key, pair.Value, pair.Expires)
		})
		if flushErr := rows.Flush(); err == nil {
			err = flushErr
		}
		a.tell(&f.fresh)
		return howFar("scan", "rows were printed", count, last, err)
	})
}

// each runs do for the pairs of a scan, and returns the number of pairs and the last key.
func each(pairs func(func(kv.Pair, error) bool),
	do func(kv.Pair) error) (count uint64, last []byte, err error) {
	for pair, err := range pairs {
		if err != nil {
			return count, last, err
		}
		if err := do(pair); err != nil {
			return count, last, err
		}
		count++
		last = pair.Key
	}
	return count, last, nil
}

// howFar adds to the error of an interrupted scan how far the scan had come.
func howFar(verb, done string, count uint64, last []byte, err error) error {
	if err == nil || count == 0 {
		return err
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%s: the output is incomplete: %d %s, the last is %s: %w", verb, count, done,
		records.Escape(last), err)
}
