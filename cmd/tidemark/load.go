package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/loading"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func (a *app) loadCommand() *cobra.Command {
	var format string
	var quiet bool
	var bulk bulkFlags
	var ttl ttlFlag
	var ignoreExpiry bool
	cmd := &cobra.Command{
		Use:   "load NAME [FILE]",
		Short: "Write the records of a file",
		Long: `Write the records of a file, or of stdin if there is no FILE or it is "-", into the
keyspace NAME.

A file is checked completely before the first record is written, and an error names the line. A pipe
cannot be checked in advance: the load stops at the bad line and says how many records were written.
Records of the same key are written in the order of the file, so the last one stays. A load may be
repeated: it writes the same values again.

--presplit is for many records. The file is read first, and sorted if it is not in the order of its
keys; a sample determines the split keys. Partitions are split, and they and their leaders spread
over the nodes. Then blocks of some megabytes are written, several times as fast as without
--presplit. Records that do not fit into --memory are sorted in a file in --temp-dir. A record that
is there with the same value is not written again, so an interrupted load goes on when it is
repeated. Of records of the same key the last one is written.

Formats: tsv has a line KEY<TAB>VALUE for each record, with \t \n \r \\ \xNN for a tab, a newline, a
carriage return, a backslash and any other byte. jsonl has an object {"key": ..., "value": ...} in
each line, with key_base64 or value_base64 for bytes that are not text. Without --format the name of
the file decides, and otherwise the format is tsv.

A record may have an expiry, as dump writes it: a time like 2030-01-31T12:00:00Z, or never, behind a
second tab or as "expires". If that time has passed, the key has no value afterwards. Other records,
and all records with --ignore-expiry, live as long as --ttl, or else the keyspace, says.`,
		Example: `  tidemark load fruit fruit.tsv
  tidemark load fruit harvest.tsv --presplit
  printf 'apple\tgreen\npear\tyellow\n' | tidemark load fruit
  tidemark dump fruit --format jsonl | tidemark load fruit-copy - --format jsonl`,
		Args: arguments("NAME and perhaps FILE", 1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string,
			word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeKeyspaces(cmd, args, word)
		},
		RunE: a.verb(func(ctx context.Context, args []string) error {
			l := load{app: a, keyspace: args[0], file: "-", quiet: quiet, bulk: bulk,
				ignoreExpiry: ignoreExpiry}
			var err error
			if l.options, err = ttl.options(); err != nil {
				return err
			}
			if len(args) == 2 {
				l.file = args[1]
			}
			l.format = records.FormatOfFile(l.file)
			if format != "" {
				var err error
				if l.format, err = records.ParseFormat(format); err != nil {
					return &exit.Error{Code: exit.Usage, Err: err}
				}
			}
			return l.run(ctx)
		}),
	}
	cmd.Flags().StringVar(&format, "format", "", "tsv or jsonl")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	bulk.register(cmd)
	ttl.register(cmd)
	cmd.Flags().BoolVar(&ignoreExpiry, "ignore-expiry", false,
		"let records live as --ttl or the keyspace says, whatever the file says")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"tsv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	return a.client(a.printing(cmd))
}

// load is one run of the verb.
type load struct {
	*app
	keyspace, file string
	format         records.Format
	quiet          bool
	bulk           bulkFlags
	// options are the options of the writes.
	options      []kv.WriteOption
	ignoreExpiry bool
	// expired counts the records that had expired, by the cluster's clock, when they were read.
	expired uint64
	// unsaid counts the records that have no expiry of their own.
	unsaid uint64
	// now returns the time of the cluster's clock. It is nil until a record has an expiry.
	now func() time.Time
	// total is the number of records if the file was checked, and 0 otherwise.
	total uint64
}

var loadLimits = records.Limits{Key: keys.MaxKeySize, Value: keys.MaxValueSize}

func (l *load) run(ctx context.Context) error {
	in := l.in
	if l.file != "-" {
		file, err := os.Open(l.file)
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		switch {
		case info.IsDir():
			return exit.Usagef("load: %s is a directory", l.file)
		case info.Mode().IsRegular() && l.bulk.presplit:
			return l.withClient(ctx,
				func(client *kv.Client) error { return l.loadBlocks(ctx, file, true, client) })
		case info.Mode().IsRegular():
			if err := l.check(ctx, file); err != nil {
				return err
			}
		}
		in = file
	}
	return l.withClient(ctx, func(client *kv.Client) error {
		if l.bulk.presplit {
			return l.loadBlocks(ctx, in, false, client)
		}
		return l.write(ctx, in, client, client.Keyspace(l.keyspace))
	})
}

// check reads the file once and goes back to its beginning.
func (l *load) check(ctx context.Context, file *os.File) error {
	shown := l.progress("check " + l.file)
	reader := records.NewReader(file, l.format, loadLimits)
	total, err := loading.Check(ctx, reader.Next, shown.Set)
	shown.Stop()
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("load: interrupted; nothing was written")
		}
		return &exit.Error{Code: exit.Failed,
			Err: fmt.Errorf("load: %s (as %s): %w; nothing was written", l.file, l.format, err)}
	}
	l.total = total
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("load: going back to the beginning of %s: %w", l.file, err)
	}
	return nil
}

func (l *load) write(ctx context.Context, in io.Reader, client *kv.Client,
	ks *kv.Keyspace) error {
	if _, err := admin.New(client).Keyspace(ctx, ks.Name()); err != nil {
		return err // even if there is no record that would report it
	}
	shown := l.progress("load " + l.keyspace)
	written, err := loading.Load(ctx, l.reader(ctx, in, client), keyspaceDestination{ks, l.options},
		loading.Options{Progress: shown.Set})
	shown.Stop()
	elapsed := shown.Elapsed()
	if err == nil {
		l.showExpiries(ctx, client, l.expired)
		return l.show(written, elapsed)
	}
	of := ""
	if l.total > 0 {
		of = fmt.Sprintf(" of %d", l.total)
	}
	var line *records.LineError
	switch {
	case errors.As(err, &line):
		return fmt.Errorf("load: %s (as %s): %w; the %d records before it were written", l.from(),
			l.format, err, written)
	case ctx.Err() != nil:
		return fmt.Errorf(
			"load: interrupted: %d%s records were written; to repeat the load does no harm", written, of)
	}
	return fmt.Errorf("load: %d%s records were certainly written, then it stopped; to repeat the "+
		"load does no harm: %w", written, of, err)
}

// show prints the result.
func (l *load) show(written uint64, elapsed time.Duration) error {
	rate := uint64(float64(written) / max(elapsed, time.Microsecond).Seconds())
	if l.app.format == output.Table {
		_, err := fmt.Fprintf(l.out, "%d records written in %.1f s (%d/s)\n", written,
			elapsed.Seconds(), rate)
		return err
	}
	list := l.list(output.Column{Name: "records"}, output.Column{Name: "elapsed"},
		output.Column{Name: "records per second"})
	list.Row(written, elapsed, rate)
	return list.Flush()
}

// reader returns the records with their effective expiries. With a client it counts the records
// that had expired.
func (l *load) reader(ctx context.Context, in io.Reader,
	client *kv.Client) func() (records.Record, error) {
	reader := records.NewReader(in, l.format, loadLimits)
	return func() (records.Record, error) {
		record, err := reader.Next()
		if l.ignoreExpiry {
			record.Expires, record.Forever = time.Time{}, false
		}
		if err == nil && record.Expires.IsZero() && !record.Forever {
			l.unsaid++
		}
		if err == nil && client != nil && !record.Expires.IsZero() {
			if l.now == nil {
				if l.now, err = clockOf(ctx, client); err != nil {
					return record, err
				}
			}
			if !record.Expires.After(l.now()) {
				l.expired++
			}
		}
		return record, err
	}
}

// clockOf returns the cluster's clock, extrapolated by this process's clock.
func clockOf(ctx context.Context, client *kv.Client) (func() time.Time, error) {
	now, err := client.Now(ctx)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	return func() time.Time { return time.Unix(0, now.Wall).Add(time.Since(asked)) }, nil
}

// showExpiries prints how many records had expired, and how many will expire although the file
// gives no expiry for them: in the dumped keyspace, such records may have had no expiry.
func (l *load) showExpiries(ctx context.Context, client *kv.Client, expired uint64) {
	if l.quiet {
		return
	}
	if expired > 0 {
		fmt.Fprintf(l.err, "load %s: records that had expired: %d; their keys have no value\n",
			l.keyspace, expired)
	}
	if l.unsaid == 0 || len(l.options) > 0 {
		return
	}
	if info, err := admin.New(client).Keyspace(ctx, l.keyspace); err == nil && info.DefaultTTL != 0 {
		fmt.Fprintf(l.err, "load %s: records that do not say when they expire: %d; they live for %s, "+
			"the default of the keyspace (--ttl never: for ever)\n", l.keyspace, l.unsaid,
			info.DefaultTTL)
	}
}

// optionsOf returns the options for the write of a record.
func optionsOf(r *records.Record, usual []kv.WriteOption) []kv.WriteOption {
	switch {
	case r.Forever:
		return []kv.WriteOption{kv.NoTTL()}
	case !r.Expires.IsZero():
		return []kv.WriteOption{kv.ExpiresAt(r.Expires)}
	}
	return usual
}

func (l *load) from() string {
	if l.file == "-" {
		return "stdin"
	}
	return l.file
}

func (l *load) progress(what string) *progress.Progress {
	return progress.Start(progress.Options{
		Out: l.err, Terminal: l.errTerminal, Width: l.errWidth, Quiet: l.quiet,
		What: what, Unit: "records",
		Total: l.total,
	})
}

// keyspaceDestination writes into a keyspace.
type keyspaceDestination struct {
	*kv.Keyspace
	options []kv.WriteOption
}

func (d keyspaceDestination) Partition(ctx context.Context, key []byte) (uint64, error) {
	return d.PartitionOf(ctx, key)
}

// Commit implements loading.Destination. A batch whose outcome is unknown is written once more.
// That does no harm to a load, and the outcome of the second write is known. The outcome is also
// known if the servers that lost the first answer refuse the second write because their disks are
// full.
func (d keyspaceDestination) Commit(ctx context.Context, batch []records.Record) error {
	err := d.commit(ctx, batch)
	if errors.Is(err, kv.ErrOutcomeUnknown) && ctx.Err() == nil {
		err = d.commit(ctx, batch)
	}
	return err
}

func (d keyspaceDestination) commit(ctx context.Context, batch []records.Record) error {
	b := d.Batch()
	for _, record := range batch {
		b.Put(record.Key, record.Value, optionsOf(&record, d.options)...)
	}
	_, err := b.Commit(ctx)
	if !errors.Is(err, kv.ErrCrossPartition) {
		return err
	}
	// The partition was split between the two calls. Single records always reach their partitions.
	for _, record := range batch {
		if _, err := d.Put(ctx, record.Key, record.Value,
			optionsOf(&record, d.options)...); err != nil {
			return err
		}
	}
	return nil
}
