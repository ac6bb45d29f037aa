package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

type coordWatchFlags struct {
	coordFlags
	keyRange
	revision, limit int64
	previous        bool
}

func (a *app) coordWatchCommand() *cobra.Command {
	var f coordWatchFlags
	cmd := &cobra.Command{
		Use:   "watch KEY [END]",
		Short: "Show changes of keys of the coordination service, as they happen",
		Long: `Show every change of a key of the coordination service, or of several keys with END,
--prefix or --from-key, in the order of the changes. The watch begins now, or with --rev at that
revision. It goes on until it is interrupted, or for --limit changes. If changes were compacted, the
error says at which revision a watch can begin.`,
		Example: `  tidemark coord watch config/ --prefix
  tidemark coord watch config/colour --rev 17 --prev-kv --output json`,
		Args: arguments("KEY [END]", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.coordWatch(ctx, args, &f)
		}),
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.Int64Var(&f.revision, "rev", 0, "begin with this revision; 0: now")
	flags.Int64Var(&f.limit, "limit", 0, "end after so many changes; 0: go on")
	flags.BoolVar(&f.previous, "prev-kv", false, "print the previous value too")
	return a.printing(a.coordClient(cmd, &f.coordFlags))
}

func (a *app) coordWatch(ctx context.Context, args []string, f *coordWatchFlags) error {
	key, options, _, err := f.key(args)
	if err != nil {
		return err
	}
	if f.revision < 0 || f.limit < 0 {
		return exit.Usagef("--rev and --limit are not below 0")
	}
	options = append(options, clientv3.WithRev(f.revision), clientv3.WithCreatedNotify())
	if f.previous {
		options = append(options, clientv3.WithPrevKV())
	}
	return a.withCoord(ctx, &f.coordFlags, func(client *coord.Client) error {
		p := watchPrinter{app: a, out: a.out, previous: f.previous}
		if err := p.head(); err != nil {
			return err
		}
		for left := f.limit; ; {
			ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
			err := func() error {
				defer cancel()
				for r := range client.Etcd().Watch(ctx, key, options...) {
					if r.CompactRevision != 0 {
						return exit.Usagef("coord watch: the changes before revision %d were compacted; begin "+
							"there with --rev %d", r.CompactRevision, r.CompactRevision)
					}
					if err := r.Err(); err != nil {
						return err
					}
					if r.Created {
						a.say("tidemark: watching from revision %d on", max(f.revision, r.Header.Revision+1))
						continue
					}
					for _, event := range r.Events {
						if err := p.print(event); err != nil {
							return err
						}
						f.revision = event.Kv.ModRevision + 1
						if left--; left == 0 {
							return io.EOF
						}
					}
				}
				return ctx.Err()
			}()
			switch {
			case errors.Is(err, io.EOF), ctx.Err() != nil && errors.Is(err, context.Canceled):
				return nil // this is the normal end
			case !errors.Is(err, rpctypes.ErrNoLeader):
				return err
			}
			a.say("tidemark: the server has no leader; watching on")
			options = append(options, clientv3.WithRev(f.revision))
		}
	})
}

// watchPrinter prints changes, each as soon as it comes.
type watchPrinter struct {
	app      *app
	out      io.Writer
	previous bool
	saidCut  bool
}

func (p *watchPrinter) columns() []output.Column {
	columns := append([]output.Column{{Name: "revision"}, {Name: "kind"}}, pairColumns()...)
	if p.previous {
		columns = append(columns, output.Column{Name: "previous value"},
			output.Column{Name: "previous revision"})
	}
	return columns
}

// head prints the lines that come before the first change.
func (p *watchPrinter) head() error {
	if p.app.format != output.TSV {
		return nil
	}
	return output.NewList(p.out, output.TSV, p.columns()...).On(p.app.screen()).Flush()
}

func (p *watchPrinter) print(event *clientv3.Event) error {
	kind, deleted := "put", event.Type == clientv3.EventTypeDelete
	if deleted {
		kind = "delete"
	}
	switch p.app.format {
	case output.Raw:
		_, err := p.out.Write(event.Kv.Value)
		return err
	case output.Table:
		line := fmt.Sprintf("%d  %-6s  %s", event.Kv.ModRevision, kind, records.Escape(event.Kv.Key))
		if !deleted {
			line += "  " + records.Escape(event.Kv.Value)
		}
		if p.previous && event.PrevKv != nil {
			line += "  (before: " + records.Escape(event.PrevKv.Value) + ")"
		}
		line, cut := output.Fit(line, p.app.width)
		p.app.sayCut(&p.saidCut, cut)
		_, err := fmt.Fprintln(p.out, line)
		return err
	}
	cells := append([]any{event.Kv.ModRevision, kind}, pairCells(event.Kv, deleted)...)
	if deleted {
		cells[4], cells[6] = nil, nil // a deleted key has no creation and no version any more
	}
	if p.previous {
		cells = append(cells, previousCells(event.PrevKv)...)
	}
	list := output.NewList(p.out, p.app.format, p.columns()...)
	list.Row(cells...)
	return list.Flush()
}
