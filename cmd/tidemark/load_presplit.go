package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
)

// bulkFlags are the flags of --presplit.
type bulkFlags struct {
	presplit bool
	memory   argument.Size
	dir      string
}

func (f *bulkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.presplit, "presplit", false,
		"split and spread the keyspace first, and write sorted blocks")
	f.memory = kv.DefaultLoadMemory
	flags.Var(&f.memory, "memory", "how much --presplit sorts in memory")
	flags.StringVar(&f.dir, "temp-dir", "",
		"where --presplit sorts what is more (default: that of the system)")
}

// stages shows the progress of a load, a bar for each stage.
type stages struct {
	load  *load
	stage kv.LoadStage
	shown *progress.Progress
}

// show is called by one goroutine at a time.
func (s *stages) show(p kv.LoadProgress) {
	if s.stage != p.Stage {
		s.stop()
		unit := "records"
		if p.Stage == kv.LoadSplitting || p.Stage == kv.LoadSpreading {
			unit = "partitions"
		}
		if p.Stage == kv.LoadSplitting && !s.load.quiet {
			fmt.Fprintf(s.load.err, "load %s: partitions to be split off before: %d\n", s.load.keyspace,
				p.Total)
		}
		s.stage = p.Stage
		s.shown = progress.Start(progress.Options{Out: s.load.err, Terminal: s.load.errTerminal,
			Width: s.load.errWidth,
			Quiet: s.load.quiet, What: string(p.Stage) + " " + s.load.keyspace, Unit: unit,
			Total: p.Total})
	}
	s.shown.Set(p.Done)
}

func (s *stages) stop() {
	if s.shown != nil {
		s.shown.Stop()
	}
}

// loadBlocks loads in blocks. again: in can be read again from its beginning.
func (l *load) loadBlocks(ctx context.Context, in io.Reader, again bool,
	client *kv.Client) error {
	began := time.Now()
	shown := stages{load: l}
	options := []kv.LoadOption{kv.Presplit(), kv.LoadMemory(int(l.bulk.memory)),
		kv.LoadDirectory(l.bulk.dir), kv.OnLoadProgress(shown.show)}
	if !again {
		options = append(options, kv.ReadOnce())
	}
	for _, o := range l.options {
		options = append(options, o.(kv.LoadOption))
	}
	done, err := client.Keyspace(l.keyspace).Load(ctx, l.records(ctx, in, again), options...)
	shown.stop()
	for _, note := range done.Notes {
		fmt.Fprintf(l.err, "load %s: %s\n", l.keyspace, note)
	}
	if err == nil {
		l.showExpiries(ctx, client, done.Expired)
		return l.showLoaded(done, time.Since(began))
	}
	var line *records.LineError
	switch {
	case errors.As(err, &line):
		return &exit.Error{Code: exit.Failed,
			Err: fmt.Errorf("load: %s (as %s): %w; nothing was written",
				l.from(), l.format, line)}
	case ctx.Err() != nil && done.Written+done.Present == 0:
		return errors.New("load: interrupted before a block was acknowledged; it can be repeated")
	case ctx.Err() != nil:
		return fmt.Errorf("load: interrupted: %d of %d records are certainly there; repeat the load, "+
			"and it goes on with the others", done.Written+done.Present, done.Records)
	}
	return fmt.Errorf("load: %d records are certainly there, then it stopped; repeat the load, and "+
		"it goes on with the others: %w", done.Written+done.Present, err)
}

// records reads the records, from the beginning each time.
func (l *load) records(ctx context.Context, in io.Reader,
	again bool) func() iter.Seq2[kv.Pair, error] {
	return func() iter.Seq2[kv.Pair, error] {
		return func(yield func(kv.Pair, error) bool) {
			if seeker, ok := in.(io.Seeker); ok && again {
				if _, err := seeker.Seek(0, io.SeekStart); err != nil {
					yield(kv.Pair{}, fmt.Errorf("going back to the beginning of %s: %w", l.file, err))
					return
				}
			}
			l.unsaid = 0
			next := l.reader(ctx, in, nil) // the SDK counts the expired records
			for {
				record, err := next()
				if errors.Is(err, io.EOF) {
					return
				}
				pair := kv.Pair{Key: record.Key, Value: record.Value, Expires: record.Expires}
				if record.Forever {
					pair.Expires = kv.Forever()
				}
				if !yield(pair, err) || err != nil {
					return
				}
			}
		}
	}
}

// showLoaded prints the result.
func (l *load) showLoaded(done kv.Loaded, elapsed time.Duration) error {
	rate := uint64(float64(done.Records) / max(elapsed, time.Microsecond).Seconds())
	if l.app.format == output.Table {
		_, err := fmt.Fprintf(l.out, "%d records loaded in %.1f s (%d/s): %d written, %d there "+
			"already, %d replaced by later ones; %d partitions split off\n", done.Records,
			elapsed.Seconds(), rate, done.Written, done.Present, done.Replaced, done.Splits)
		return err
	}
	list := l.list(output.Column{Name: "records"}, output.Column{Name: "elapsed"},
		output.Column{Name: "records per second"}, output.Column{Name: "written"},
		output.Column{Name: "present"}, output.Column{Name: "replaced"}, output.Column{Name: "splits"})
	list.Row(done.Records, elapsed, rate, done.Written, done.Present, done.Replaced, done.Splits)
	return list.Flush()
}
