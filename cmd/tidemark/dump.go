package main

import (
	"bufio"
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) dumpCommand() *cobra.Command {
	var f scanFlags
	var format string
	var quiet, never bool
	cmd := &cobra.Command{
		Use:   "dump NAME",
		Short: "Write a keyspace as a file that load reads",
		Long: `Write the keyspace NAME, or a range of it, to stdout, in key order, at one timestamp.
If a keyspace was loaded from a dump, its dump is the same byte for byte, whatever bytes keys and
values contain.

Formats: tsv has a line KEY<TAB>VALUE for each record, with \t \n \r \\ \xNN for bytes that do not
print, and the expiry, if there is one, behind another tab. jsonl has an object {"key": ...,
"value": ...}, with key_base64 and value_base64 for bytes that are not text, and "expires". If the
keyspace has a default time to live, or with --never, a value that does not expire has the expiry
"never". Such a value does not expire either in a keyspace with a default time to live.`,
		Example: `  tidemark dump fruit > fruit.tsv
  tidemark dump fruit --format jsonl --at -5s | gzip > fruit.jsonl.gz`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			switch a.format { // a dump has no table: without --output, --format decides
			case output.JSON:
				format = string(records.JSONL)
			case output.TSV:
				format = string(records.TSV)
			case output.Raw:
				return exit.Usagef("--output raw: a dump is read back by load; use tsv or json")
			}
			parsed, err := records.ParseFormat(format)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			return a.dump(ctx, args[0], f, parsed, quiet, never)
		}),
	}
	f.Span.Register(cmd)
	cmd.Flags().StringVar(&f.at.text, "at", "", "dump the past: "+argument.MomentHelp)
	cmd.Flags().StringVar(&format, "format", string(records.TSV), "tsv or jsonl")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	cmd.Flags().BoolVar(&never, "never", false, "write never behind each value that does not expire")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"tsv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	a.printing(cmd)
	cmd.Flags().Lookup("output").Usage = "tsv or json, for --format tsv and jsonl"
	cmd.MarkFlagsMutuallyExclusive("output", "format")
	return a.client(cmd)
}

func (a *app) dump(ctx context.Context, keyspace string, f scanFlags, format records.Format,
	quiet, never bool) error {
	options, err := f.scanOptions()
	if err != nil {
		return err
	}
	if a.headers {
		return exit.Usagef("--headers: a dump is read back by load, which takes no line of names")
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
		buffered := bufio.NewWriterSize(a.out, 256<<10)
		writer := records.NewWriter(buffered, format)
		shown := progress.Start(progress.Options{
			Out: a.err, Terminal: a.errTerminal, Width: a.errWidth, Quiet: quiet || a.outTerminal,
			What: "dump " + keyspace, Unit: "records",
		})
		info, err := admin.New(client).Keyspace(ctx, keyspace)
		if err != nil {
			return err
		}
		done := uint64(0)
		count, last, err := each(ks.Scan(ctx, options...), func(pair kv.Pair) error {
			done++
			if done%1024 == 0 {
				shown.Set(done)
			}
			return writer.Write(records.Record{Key: pair.Key, Value: pair.Value, Expires: pair.Expires,
				Forever: pair.Expires.IsZero() && (never || info.DefaultTTL != 0)})
		})
		if flushErr := buffered.Flush(); err == nil {
			err = flushErr
		}
		shown.Stop()
		return howFar("dump", "records were written", count, last, err)
	})
}
