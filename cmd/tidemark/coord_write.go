package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) coordPutCommand() *cobra.Command {
	var f coordFlags
	var e argument.Encoding
	var file, lease string
	var previous bool
	cmd := &cobra.Command{
		Use:   "put KEY VALUE",
		Short: "Write a key of the coordination service",
		Long: `Write a key of the coordination service, over any value that it has. The command
prints the revision of the write; with --prev-kv also the previous value.

The value - stands for standard input, up to its end; --escaped '\x2d' writes one hyphen.`,
		Example: `  tidemark coord put config/colour green
  tidemark coord put config/tls --value-file tls.json
  tidemark coord put machines/7 up --lease 694d81417acd4c15`,
		Args: arguments("KEY VALUE, or KEY and --value-file", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			key, err := e.DecodeKey(args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 && file == "" {
				return exit.Usagef("there is no value: give KEY VALUE, or KEY and --value-file")
			}
			value, err := a.value(args[1:], file, e)
			if err != nil {
				return err
			}
			var options []clientv3.OpOption
			if lease != "" {
				id, err := parseLease(lease)
				if err != nil {
					return err
				}
				options = append(options, clientv3.WithLease(id))
			}
			if previous {
				options = append(options, clientv3.WithPrevKV())
			}
			return a.withEtcd(ctx, &f, true, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Put(ctx, string(key), string(value), options...)
				if err != nil {
					return err
				}
				columns := []output.Column{{Name: "revision", Number: true}}
				cells := []any{r.Header.Revision}
				if previous {
					columns = append(columns, output.Column{Name: "previous value"},
						output.Column{Name: "previous revision", Number: true})
					cells = append(cells, previousCells(r.PrevKv)...)
				}
				list := a.list(columns...)
				list.Row(cells...)
				return list.Flush()
			})
		}),
	}
	e.Register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&file, "value-file", "", "take the value from this file, as it is; - is stdin")
	flags.StringVar(&lease, "lease", "", "the lease, in hexadecimal, with which the key goes")
	flags.BoolVar(&previous, "prev-kv", false, "print the previous value too")
	return a.printing(a.coordClient(cmd, &f))
}

func previousCells(kv *mvccpb.KeyValue) []any {
	if kv == nil {
		return []any{nil, nil}
	}
	return []any{notNil(kv.Value), kv.ModRevision}
}

func (a *app) coordDeleteCommand() *cobra.Command {
	var f coordFlags
	var r keyRange
	var previous bool
	cmd := &cobra.Command{
		Use:   "del KEY [END]",
		Short: "Delete keys of the coordination service",
		Long: `Delete a key of the coordination service; with END the keys from KEY up to END, which
is not included; with --prefix or --from-key other ranges. The command prints the number of deleted
keys, and the revision; with --prev-kv the keys.`,
		Example: `  tidemark coord del config/colour
  tidemark coord del config/ --prefix --prev-kv`,
		Args: arguments("KEY [END]", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			key, options, _, err := r.key(args)
			if err != nil {
				return err
			}
			if previous {
				options = append(options, clientv3.WithPrevKV())
			}
			return a.withEtcd(ctx, &f, true, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Delete(ctx, key, options...)
				if err != nil {
					return err
				}
				if previous {
					return a.printKeys(r.PrevKvs, false)
				}
				list := a.list(output.Column{Name: "deleted", Number: true},
					output.Column{Name: "revision", Number: true})
				list.Row(r.Deleted, r.Header.Revision)
				return list.Flush()
			})
		}),
	}
	r.register(cmd)
	cmd.Flags().BoolVar(&previous, "prev-kv", false, "print the keys that are deleted")
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) coordCompactCommand() *cobra.Command {
	var f coordFlags
	var physical bool
	cmd := &cobra.Command{
		Use:   "compact REVISION",
		Short: "Remove the history of the coordination service below a revision",
		Long: `Remove the history of the coordination service below a revision: reads of earlier
revisions are refused, and watches that lag behind the revision end.`,
		Example: `  tidemark coord compact 1200`,
		Args:    arguments("REVISION", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			revision, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || revision < 1 {
				return exit.Usagef("%q is no revision: give a number above 0", args[0])
			}
			var options []clientv3.CompactOption
			if physical {
				options = append(options, clientv3.WithCompactPhysical())
			}
			return a.withEtcd(ctx, &f, true, func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.Compact(ctx, revision, options...)
				if errors.Is(err, rpctypes.ErrFutureRev) {
					if r, failed := c.Get(ctx, "\x00", clientv3.WithCountOnly()); failed == nil {
						return exit.Usagef("the revision %d is in the future: the newest is %d", revision,
							r.Header.Revision)
					}
				}
				if err != nil {
					return err
				}
				list := a.list(output.Column{Name: "compacted revision", Number: true})
				list.Row(revision)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().BoolVar(&physical, "physical", false, "wait until it is gone from the server's disk")
	return a.printing(a.coordClient(cmd, &f))
}
