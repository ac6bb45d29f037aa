package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) coordCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coord",
		Short: "Read and write the keys of the coordination service",
		Long: `Read and write the keys of the coordination service: configuration, locks, members of
groups. These keys are separate from those of keyspaces. Every change has a revision, which counts
up; changes can be watched from any revision that was not compacted.

The commands use the etcd v3 API; etcdctl works as well.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.coordGetCommand(), a.coordPutCommand(), a.coordDeleteCommand(),
		a.coordTxnCommand(), a.coordWatchCommand(), a.coordCompactCommand(), a.coordExportCommand(),
		a.coordImportCommand())
	return cmd
}

// keyRange is a key, or a range of keys.
type keyRange struct {
	argument.Encoding
	prefix, fromKey bool
}

func (r *keyRange) register(cmd *cobra.Command) {
	r.Encoding.Register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&r.prefix, "prefix", false, "all keys that begin with KEY, which may be empty")
	flags.BoolVar(&r.fromKey, "from-key", false, "all keys at or above KEY, which may be empty")
	cmd.MarkFlagsMutuallyExclusive("prefix", "from-key")
}

// key parses KEY [END]. single reports whether the arguments name only one key.
func (r *keyRange) key(args []string) (key string, options []clientv3.OpOption, single bool,
	err error) {
	decoded, err := r.Decode("key", args[0])
	if err != nil {
		return "", nil, false, err
	}
	switch key = string(decoded); {
	case len(args) == 2 && (r.prefix || r.fromKey):
		return "", nil, false, exit.Usagef("END, --prefix and --from-key exclude each other: give one")
	case r.prefix:
		return key, []clientv3.OpOption{clientv3.WithPrefix()}, false, nil
	case r.fromKey && key == "":
		return "\x00", []clientv3.OpOption{clientv3.WithFromKey()}, false, nil
	case r.fromKey:
		return key, []clientv3.OpOption{clientv3.WithFromKey()}, false, nil
	case key == "":
		return "", nil, false, exit.Usagef("the key is empty; for all keys give --prefix too")
	case len(args) == 2:
		end, err := r.DecodeKey(args[1])
		return key, []clientv3.OpOption{clientv3.WithRange(string(end))}, false, err
	}
	return key, nil, true, nil
}

// pairColumns returns the columns of a list of the service's keys.
func pairColumns() []output.Column {
	return []output.Column{{Name: "key"}, {Name: "value"},
		{Name: "create revision", Number: true}, {Name: "mod revision", Number: true},
		{Name: "version", Number: true}, {Name: "lease", Whole: true}}
}

func pairCells(kv *mvccpb.KeyValue, keysOnly bool) []any {
	value := any(notNil(kv.Value))
	if keysOnly {
		value = nil
	}
	return []any{kv.Key, value, kv.CreateRevision, kv.ModRevision, kv.Version, leaseCell(kv.Lease)}
}

func leaseCell(id int64) any {
	if id == 0 {
		return nil
	}
	return leaseText(clientv3.LeaseID(id))
}

// leaseText formats a lease as etcdctl does.
func leaseText(id clientv3.LeaseID) string { return fmt.Sprintf("%016x", uint64(id)) }

// parseLease parses a lease in the form of leaseText.
func parseLease(text string) (clientv3.LeaseID, error) {
	id, err := strconv.ParseUint(text, 16, 63)
	if err != nil || id == 0 {
		return 0, exit.Usagef("%q is no lease: give its hexadecimal number, as lease grant shows it",
			text)
	}
	return clientv3.LeaseID(id), nil
}

type coordGetFlags struct {
	coordFlags
	keyRange
	revision, limit         int64
	keysOnly, countOnly     bool
	serializable, backwards bool
}

func (a *app) coordGetCommand() *cobra.Command {
	var f coordGetFlags
	cmd := &cobra.Command{
		Use:   "get KEY [END]",
		Short: "Read keys of the coordination service",
		Long: `Read a key of the coordination service; with END the keys from KEY up to END, which
is not included; with --prefix or --from-key other ranges.

If a single key does not exist, the exit code is 3. With --output raw only the bytes of the values
are printed, without a newline.`,
		Example: `  tidemark coord get config/colour
  tidemark coord get config/ --prefix --output json
  tidemark coord get "" --prefix --keys-only
  tidemark coord get config/colour --rev 17`,
		Args: arguments("KEY [END]", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.coordGet(ctx, args, &f)
		}),
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.Int64Var(&f.revision, "rev", 0, "read as of this revision; 0: now")
	flags.Int64Var(&f.limit, "limit", 0, "the greatest number of keys; 0: all")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "leave out the values")
	flags.BoolVar(&f.countOnly, "count-only", false, "print only how many there are")
	flags.BoolVar(&f.backwards, "reverse", false, "from the highest key down")
	flags.BoolVar(&f.serializable, "serializable", false,
		"let the server answer from its own state, which may be old")
	cmd.MarkFlagsMutuallyExclusive("keys-only", "count-only")
	return a.printing(a.coordClient(cmd, &f.coordFlags))
}

func (a *app) coordGet(ctx context.Context, args []string, f *coordGetFlags) error {
	key, options, single, err := f.key(args)
	if err != nil {
		return err
	}
	if f.revision < 0 || f.limit < 0 {
		return exit.Usagef("--rev and --limit are not below 0")
	}
	options = append(options, clientv3.WithRev(f.revision), clientv3.WithLimit(f.limit))
	if f.keysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	if f.countOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	if f.serializable {
		options = append(options, clientv3.WithSerializable())
	}
	if f.backwards {
		options = append(options, clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	}
	return a.withEtcd(ctx, &f.coordFlags, false, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, key, options...)
		switch {
		case err != nil:
			return err
		case f.countOnly:
			list := a.list(output.Column{Name: "count", Number: true},
				output.Column{Name: "revision", Number: true, Programs: true})
			list.Row(r.Count, r.Header.Revision)
			return list.Flush()
		case single && len(r.Kvs) == 0:
			return exit.NotFoundf("coord get %q: the key is not there", key)
		}
		return a.printKeys(r.Kvs, f.keysOnly)
	})
}

func (a *app) printKeys(kvs []*mvccpb.KeyValue, keysOnly bool) error {
	if a.format == output.Raw && !keysOnly {
		for _, kv := range kvs {
			if _, err := a.out.Write(kv.Value); err != nil {
				return err
			}
		}
		return nil
	}
	list := a.list(pairColumns()...)
	for _, kv := range kvs {
		list.Row(pairCells(kv, keysOnly)...)
	}
	return list.Flush()
}
