package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/follow"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

type changesFlags struct {
	argument.Span
	since, until     momentFlag
	follow, consumer string
	progress, whole  bool
	memory, spill    argument.Size
	dir              string
}

func (a *app) changesCommand() *cobra.Command {
	var f changesFlags
	cmd := &cobra.Command{
		Use:   "changes NAME",
		Short: "Show the changes of a keyspace as they happen",
		Long: `Show every version that is written in the keyspace NAME, or in a range of it: each
put and each delete, with its timestamp, about a second after the write. Versions of one key come in
the order of their timestamps. The changes begin now, or with --since at a timestamp. They go on
until the command is interrupted, or with --until up to a timestamp.

With --progress the command also shows up to which timestamp all changes have come. --since with
such a timestamp goes on behind it, without a gap, as long as the GC window of the keyspace reaches
back to it.

Without --whole a change above the next progress may come before that progress, and changes of
different keys come in any order. With --whole changes come in the order of their timestamps, and
the changes of a transaction side by side. Changes wait for their progress in half of
--whole-memory, and beyond that in half of --whole-spill. A command that is behind asks for no more
at a time than has room there. If the changes at one timestamp have no room, the command fails.

With --consumer the command goes on at the position of the consumer of that name, and garbage
collection keeps the changes that the consumer has not taken (tidemark consumers). A new consumer
begins now, or with --since at a timestamp. A consumer belongs to the keys of the first command with
its name: a command for other keys is refused.

With --follow the lines are appended to a file, in the order of --whole. FILE.position beside it
has the position; both survive a crash. The same command goes on there: it cuts off the lines behind
the position and writes them again, so each change is in the file once. --since then counts for a
new file only. Only one command at a time may follow into a file.`,
		Example: `  tidemark changes fruit
  tidemark changes fruit --since -10m --until -0s --output json
  tidemark changes fruit --prefix a --progress
  tidemark changes fruit --consumer indexer --output json
  tidemark changes fruit --follow fruit.jsonl --output json`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.changes(ctx, args[0], &f)
		}),
	}
	f.Span.Register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.since.text, "since", "", "begin with the changes after: "+
		argument.MomentHelp)
	flags.StringVar(&f.until.text, "until", "",
		"end when all changes up to this timestamp have come; as with --since")
	flags.BoolVar(&f.progress, "progress", false,
		"show each second up to which timestamp all changes have come")
	flags.BoolVar(&f.whole, "whole", false,
		"show changes in the order of their timestamps, and before each progress exactly those up to it")
	f.memory, f.spill = kv.DefaultWholeMemory, kv.DefaultWholeSpill
	flags.Var(&f.memory, "whole-memory", "memory for changes that wait for their "+
		"progress with --whole")
	flags.Var(&f.spill, "whole-spill", "temporary files for those that do not fit into memory")
	flags.StringVar(&f.dir, "temp-dir", "",
		"where --whole makes temporary files (default: that of the system)")
	flags.StringVar(&f.consumer, "consumer", "",
		"go on at the position of the consumer of this name, and keep the changes that it has not seen "+
			"from garbage collection")
	flags.StringVar(&f.follow, "follow", "", "append to this file, and go on where it ends")
	cmd.MarkFlagsMutuallyExclusive("follow", "consumer")
	a.localityFlag(cmd)
	return a.printing(a.client(cmd))
}

func (a *app) changes(ctx context.Context, keyspace string, f *changesFlags) error {
	spans, err := f.Options()
	if err != nil {
		return err
	}
	var options []kv.ChangesOption
	for _, span := range spans {
		options = append(options, span)
	}
	switch {
	case f.whole || f.follow != "":
		// The file of --follow is cut to a progress when it is opened. Changes above a progress must not
		// be in it then: they come again.
		options = append(options, kv.Whole(kv.WholeMemory(int(f.memory)),
			kv.WholeSpill(f.dir, uint64(f.spill))))
	case f.memory != kv.DefaultWholeMemory || f.spill != kv.DefaultWholeSpill || f.dir != "":
		return exit.Usagef("--whole-memory, --whole-spill and --temp-dir are for --whole")
	}
	since := f.since
	if err := cmp.Or(since.parse(), f.until.parse()); err != nil {
		return err
	}
	if f.consumer != "" {
		options = append(options, kv.Consumer(f.consumer))
	}
	p := &changesPrinter{lines: output.Changes{Format: a.format}, progress: f.progress,
		now: !f.since.given() && f.consumer == ""}
	p.lines.Screen.Headers = a.headers
	if f.follow == "" {
		p.lines.Screen = a.screen()
		said := false
		p.cut = func() { a.sayCut(&said, p.lines.Cut) }
		out := bufio.NewWriterSize(a.out, 64<<10)
		p.out, p.mark = out, func(kv.Timestamp) error { return out.Flush() }
		p.live = a.outTerminal
	} else {
		file, at, ok, err := follow.Open(f.follow, keyspace, f.Span.String())
		if failed := new(fs.PathError); err != nil && !errors.As(err, &failed) {
			err = &exit.Error{Code: exit.Usage, Err: err}
		}
		if err != nil {
			return err
		}
		defer file.Close()
		p.headed = at.Bytes > 0
		if ok {
			since, p.now = momentFlag{text: at.Timestamp}, false
			if err := since.parse(); err != nil {
				return err
			}
		}
		p.out, p.mark = file, func(at kv.Timestamp) error { return file.Mark(at.String()) }
	}
	return a.withClient(ctx, func(client *kv.Client) error {
		var err error
		if f.until.given() {
			if p.until, err = f.until.at(ctx, client); err != nil {
				return err
			}
		}
		if since.given() {
			if p.complete, err = since.at(ctx, client); err != nil {
				return err
			}
			options = append(options, kv.Since(p.complete))
		}
		ks := client.Keyspace(keyspace)
		err = p.print(ks.Changes(ctx, options...))
		if err == nil && f.consumer != "" { // the consumer's position is still before the last progress
			err = moveConsumer(ctx, ks, f.consumer, p.complete, spans)
		}
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // this is the normal end
		}
		if err != nil && p.count > 0 {
			err = fmt.Errorf("changes: %d were written, all up to %s: %w", p.count, p.complete, err)
		}
		return err
	})
}

// moveConsumer advances a consumer's recorded position, unless the position is further already.
func moveConsumer(ctx context.Context, ks *kv.Keyspace, name string, to kv.Timestamp,
	spans []kv.SpanOption) error {
	info, err := ks.Consumer(ctx, name)
	if err != nil && !errors.Is(err, kv.ErrConsumerNotFound) {
		return err
	}
	if to.LessEq(info.Position) {
		return nil
	}
	options := []kv.ConsumerOption{kv.All()}
	for _, span := range spans {
		options = append(options, span)
	}
	_, err = ks.SetConsumer(ctx, name, to, options...)
	return err
}

// changesPrinter prints a feed.
type changesPrinter struct {
	out      io.Writer
	lines    output.Changes
	progress bool
	// cut is called after each line, if it is not nil.
	cut func()
	// until is the end of the output, or zero. headed: the header was printed. live: each line is
	// flushed at once. now: the feed begins at the present, so the first progress shows where.
	until             kv.Timestamp
	headed, live, now bool
	// mark is called at each progress, when all changes up to it are printed. It is also called before
	// anything is printed, with the beginning of the feed, so that all output has a position.
	mark func(kv.Timestamp) error

	line  []byte
	count uint64
	// complete: all changes at or below this timestamp are printed. It starts with the beginning of
	// the feed, if that is known. INVARIANT: it is not above until, because changes above until are
	// left out.
	complete kv.Timestamp
}

func (p *changesPrinter) print(feed func(func(kv.Change, error) bool)) error {
	begun := false
	for c, err := range feed {
		if err != nil {
			return err
		}
		if !begun {
			begun = true
			if err := p.begin(&c); err != nil {
				return err
			}
		}
		end := !p.until.IsZero() && p.until.LessEq(c.Timestamp)
		if c.Kind == kv.ChangeProgress {
			if end {
				c.Timestamp = p.until
			}
			if c.Timestamp.Less(p.complete) {
				c.Timestamp = p.complete
			}
			p.complete = c.Timestamp
		}
		if c.Kind != kv.ChangeProgress || p.progress {
			if err := p.one(&c); err != nil {
				return err
			}
		}
		if c.Kind != kv.ChangeProgress && !p.live {
			continue
		}
		if err := p.mark(p.complete); err != nil {
			return err
		}
		if c.Kind == kv.ChangeProgress && end {
			return nil
		}
	}
	return nil
}

// begin prints the lines that come before the first change or progress.
func (p *changesPrinter) begin(first *kv.Change) error {
	if p.now {
		p.complete = first.Timestamp
	}
	if err := p.mark(p.complete); err != nil || p.headed {
		return err
	}
	_, err := p.out.Write(p.lines.AppendHead(nil))
	return err
}

// one prints the line of a change, unless the change is above until.
func (p *changesPrinter) one(c *kv.Change) error {
	if c.Kind != kv.ChangeProgress {
		if !p.until.IsZero() && p.until.Less(c.Timestamp) {
			return nil
		}
		p.count++
	}
	p.line = p.lines.Append(p.line[:0], &output.Change{Timestamp: c.Timestamp.String(),
		Kind: c.Kind.String(), Key: c.Key, Value: c.Value, HasValue: c.Kind == kv.ChangePut,
		Expires: c.Expires})
	_, err := p.out.Write(p.line)
	if err == nil && p.cut != nil {
		p.cut()
	}
	return err
}
