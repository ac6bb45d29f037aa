package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

func (a *app) coordImportCommand() *cobra.Command {
	var f coordFlags
	var quiet, abandon, withoutSum, skipUsers bool
	bump := uint64(etcdfile.LeastRaise)
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "import FILE",
		Short: "Import a snapshot of etcd into an empty coordination service",
		Long: `Import a snapshot of etcd, as "etcdctl snapshot save" and "tidemark coord export"
write it, into a coordination service without keys and leases. Keys keep their revisions, versions
and leases. Leases run from the end of the import on, for the time that was left at their last
checkpoint, or else for their full terms.

The service goes on at the revision of the snapshot plus 1,000,000,000, or at the number of
microseconds since 1970 if that number is higher; with --bump-revision N, at the revision of the
snapshot plus N. So it never gives out a revision again that a service has given out after the
snapshot, also if the same snapshot was imported before. A client that has seen such a revision is
told that it was compacted, and reads again, and fencing tokens go on rising. With --bump-revision 0
the service goes on at the revision of the snapshot: use it only if nothing was written after the
snapshot.

The history is left out: earlier revisions cannot be read, and watches that ask for them are told
that they were compacted.

Users, with their passwords, and roles are imported as well, unless --skip-users leaves them out. If
etcd had authentication enabled, the end of the import enables it here: root's password is that of
root in etcd.

Until the import has ended the service answers no client. To continue an interrupted import, give
the command again with the same file; to end it, give --abandon, which leaves the service empty.

The file is checked before anything is written. Memory holds each key, and some 100 bytes more.`,
		Example: `  etcdctl snapshot save etcd.db
  tidemark coord import etcd.db
  tidemark coord import --abandon`,
		Args: arguments("FILE, or --abandon", 0, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if abandon == (len(args) == 1) {
				return exit.Usagef("give the FILE to import, or --abandon to give an import up")
			}
			if abandon {
				return a.withImport(ctx, &f, a.abandonImport)
			}
			i := &importing{app: a, bump: bump, bumpGiven: cmd.Flags().Changed("bump-revision")}
			return a.coordImport(ctx, &f, i, args[0], quiet, withoutSum, skipUsers)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	flags.BoolVar(&abandon, "abandon", false, "give up the import that is under way")
	flags.BoolVar(&withoutSum, "skip-hash-check", false,
		"take a file without a sum at its end, such as that of a member of etcd which is stopped")
	flags.BoolVar(&skipUsers, "skip-users", false,
		"leave users and roles out, and do not enable authentication")
	flags.Uint64Var(&bump, "bump-revision", bump,
		"go on at the revision of the snapshot and exactly so many more; by default, at least so many")
	return a.printing(a.coordClient(cmd, &f))
}

// withImport runs do with a client of imports.
func (a *app) withImport(ctx context.Context, f *coordFlags,
	do func(context.Context, coordpb.ImportClient) error) error {
	return a.withCoord(ctx, f, func(client *coord.Client) error {
		return do(ctx, coordpb.NewImportClient(client.Etcd().ActiveConnection()))
	})
}

func (a *app) abandonImport(ctx context.Context, client coordpb.ImportClient) error {
	state, err := ask(ctx, a, client.State, &coordpb.ImportStateRequest{})
	if err != nil {
		return err
	}
	if state.Phase != coordpb.ImportState_UNDER_WAY {
		return exit.NotFoundf("no import is under way")
	}
	if _, err := ask(ctx, a, client.Abandon,
		&coordpb.AbandonImportRequest{Id: state.Id}); err != nil {
		return err
	}
	list := a.list(output.Column{Name: "abandoned keys", Number: true},
		output.Column{Name: "leases", Number: true})
	list.Row(state.Keys, state.Leases)
	return list.Flush()
}

func (a *app) coordImport(
	ctx context.Context, f *coordFlags, i *importing, path string, quiet, withoutSum, skipUsers bool,
) error {
	show := func(what, unit string, total uint64) *progress.Progress {
		return progress.Start(progress.Options{Out: a.err, Terminal: a.errTerminal, Width: a.errWidth,
			Quiet: quiet,
			What:  what, Unit: unit, Total: total})
	}
	checking := show("check "+path, "bytes", 0)
	file, err := etcdfile.Open(ctx, path, etcdfile.Options{WithoutSum: withoutSum,
		Progress: checking.Set})
	checking.Stop()
	if errors.Is(err, etcdfile.ErrNoSum) {
		return fmt.Errorf("%w; if it is complete, --skip-hash-check takes it", err)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	i.file, i.users = file, !skipUsers && len(file.Users)+len(file.Roles) > 0
	if err := i.check(); err != nil {
		return err
	}
	err = a.withImport(ctx, f, func(ctx context.Context, client coordpb.ImportClient) error {
		i.client = client
		if err := i.begin(ctx); err != nil {
			return err
		}
		i.shown = show("import "+path, "keys", uint64(file.Len()))
		defer i.shown.Stop()
		return i.run(ctx)
	})
	if err != nil {
		if i.began {
			return fmt.Errorf("%w; %d of %d keys are imported, and the service answers nobody before "+
				"all are: give the command once more to go on, or --abandon", err, i.state.Keys, file.Len())
		}
		return err
	}
	return i.report()
}

// ask sends a request to a server, and repeats it while no server answers or all servers are busy.
// It is only for requests that may be repeated.
func ask[Request, Answer any](ctx context.Context, a *app,
	call func(context.Context, *Request, ...callOption) (*Answer, error), r *Request,
) (*Answer, error) {
	began, pause := time.Now(), 50*time.Millisecond
	for {
		answer, err := call(ctx, r)
		switch codeOf(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted:
		default:
			return answer, err
		}
		if time.Since(began) > max(a.timeout, askPatience) || ctx.Err() != nil {
			return answer, err
		}
		pause = min(2*pause, 2*time.Second)
		if err := backoff.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// askPatience is the shortest time for which a step of an import is retried.
const askPatience = time.Minute

func newImportID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
