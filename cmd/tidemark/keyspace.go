package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) keyspaceCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "keyspace",
		Aliases: []string{"ks"},
		Short:   "Create, list, describe, alter and drop keyspaces",
		Long: `A keyspace is a named set of keys with one way of partitioning, one number of replicas,
and one window in which the past can be read.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.keyspaceCreateCommand(), a.keyspaceListCommand(), a.keyspaceDescribeCommand(),
		a.keyspaceAlterCommand(), a.keyspaceDropCommand())
	return root
}

type createFlags struct {
	argument.Encoding
	partitions string
	splitAt    []string
	place      placeFlags
	window     windowFlag
	commitWait bool
	ifMissing  bool
	quiet      bool
	limits     limitFlags
	sizes      sizeFlags
	lag        lagFlag
	ttl        defaultTTLFlag
	quotas     quotaFlags
}

func (a *app) keyspaceCreateCommand() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create NAME [--partitions hash:N | --partitions range [--split-at KEY]...]",
		Short: "Create a keyspace",
		Long: `Create a keyspace, and wait until it can be used.

range, the default, keeps keys in order. It begins with one partition, and each --split-at key
begins another one. hash:N spreads the keys evenly over N partitions; N never changes. Either way
partitions split as they grow, and merge as they shrink.

The copies of a partition are on different nodes; if there are fewer nodes than --replicas, the
keyspace waits for more.

With thousands of partitions the command shows how many have been created; --timeout then counts
from one created partition to the next. If the command is interrupted, the keyspace exists, and its
creation goes on: --if-missing waits for it.`,
		Example: `  tidemark keyspace create fruit
  tidemark keyspace create events --partitions hash:32
  tidemark keyspace create users --partitions range --split-at g --split-at p
  tidemark keyspace create cache --partitions hash:8 --replicas 1 --gc-window 10m
  tidemark keyspace create ledger --partitions hash:32 --commit-wait
  tidemark keyspace create sessions --partitions hash:32 --ttl 24h
  tidemark keyspace create orders --quota-bytes 10GiB --quota-requests 1000
  tidemark keyspace create fruit --partitions hash:32 --if-missing`,
		Args: arguments("NAME", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.createKeyspace(ctx, args[0], f)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.partitions, "partitions", "range", "hash:N or range")
	flags.StringArrayVar(&f.splitAt, "split-at", nil,
		"with range: a key that begins a partition; once for each, ascending")
	f.place.register(cmd, "the cluster's, 3")
	f.window.register(cmd, "the cluster's, 1h")
	flags.BoolVar(&f.commitWait, "commit-wait", false,
		"every write is acknowledged, and seen, only when all clocks have passed its timestamp")
	flags.BoolVar(&f.ifMissing, "if-missing", false,
		"succeed if the keyspace exists and is as the flags describe it")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
	f.limits.register(cmd, "1h", "2m")
	f.sizes.register(cmd, "256MiB", "64MiB or a quarter of the split size")
	f.lag.register(cmd, "1s")
	f.ttl.register(cmd, never)
	f.quotas.register(cmd, "none")
	f.Encoding.Register(cmd)
	_ = cmd.RegisterFlagCompletionFunc("partitions",
		cobra.FixedCompletions([]string{"hash:8", "hash:32", "hash:128", "range"},
			cobra.ShellCompDirectiveNoFileComp))
	return a.client(a.printing(cmd))
}

func (f *createFlags) options() (options []kv.KeyspaceOption, err error) {
	if strings.HasPrefix(f.partitions, "hash") && len(f.splitAt) > 0 {
		return nil, exit.Usagef(
			"--split-at is for range keyspaces; a hash keyspace begins with a partition for each number")
	}
	var split [][]byte
	for i, text := range f.splitAt {
		key, err := f.Decode("--split-at", text)
		switch {
		case err != nil:
			return nil, err
		case len(key) == 0:
			return nil, exit.Usagef("--split-at: the key is empty; the first partition begins " +
				"there anyway")
		case i > 0 && bytes.Equal(key, split[i-1]):
			return nil, exit.Usagef("--split-at %q is given twice", text)
		case i > 0 && bytes.Compare(key, split[i-1]) < 0:
			return nil, exit.Usagef("--split-at %q comes after %q but is lower; give the keys in "+
				"ascending order", text, f.splitAt[i-1])
		}
		split = append(split, key)
	}
	partitioning, _, err := argument.ParsePartitioning(f.partitions, split...)
	if err != nil {
		return nil, err
	}
	options = append(options, partitioning)
	placing, err := f.place.options()
	if err != nil {
		return nil, err
	}
	for _, option := range placing {
		options = append(options, option)
	}
	windows, err := f.window.options()
	if err != nil {
		return nil, err
	}
	for _, option := range windows {
		options = append(options, option)
	}
	limits, err := f.limits.options()
	if err != nil {
		return nil, err
	}
	for _, limit := range limits {
		options = append(options, limit)
	}
	for _, size := range f.sizes.options() {
		options = append(options, size)
	}
	closed, err := f.lag.options()
	if err != nil {
		return nil, err
	}
	for _, option := range closed {
		options = append(options, option)
	}
	lives, err := f.ttl.options()
	if err != nil {
		return nil, err
	}
	for _, option := range lives {
		options = append(options, option)
	}
	quotas, err := f.quotas.options()
	if err != nil {
		return nil, err
	}
	for _, option := range quotas {
		options = append(options, option)
	}
	if f.commitWait {
		options = append(options, kv.CommitWait())
	}
	return options, nil
}

func (a *app) createKeyspace(ctx context.Context, name string, f createFlags) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	shown := &creationProgress{app: a, quiet: f.quiet}
	client, err := a.connect(ctx, kv.CreationProgress(shown.set))
	if err != nil {
		return err
	}
	defer client.Close()
	create := client.CreateKeyspace
	if f.ifMissing {
		create = func(ctx context.Context, name string,
			options ...kv.KeyspaceOption) (*kv.Keyspace, error) {
			keyspace, _, err := client.CreateKeyspaceIfMissing(ctx, name, options...)
			return keyspace, err
		}
	}
	keyspace, err := create(ctx, name, options...)
	shown.stop()
	if err != nil {
		return err
	}
	info, err := admin.New(client).Keyspace(ctx, keyspace.Name())
	if err != nil {
		return err
	}
	return a.printKeyspaces([]admin.KeyspaceInfo{info})
}

// creationProgress shows how many partitions of a new keyspace are set up.
type creationProgress struct {
	app   *app
	quiet bool
	shown *progress.Progress
}

func (c *creationProgress) set(keyspace string, made, total int) {
	if c.shown == nil {
		c.shown = progress.Start(progress.Options{
			Out: c.app.err, Terminal: c.app.errTerminal, Width: c.app.errWidth,
			Quiet: c.quiet, What: "create " + keyspace,
			Unit: "partitions", Total: uint64(total),
		})
	}
	c.shown.Set(uint64(made))
}

func (c *creationProgress) stop() {
	if c.shown != nil {
		c.shown.Stop()
	}
}

func (a *app) keyspaceListCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "list",
		Short: "List the keyspaces",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				keyspaces, err := admin.New(client).Keyspaces(ctx)
				if err != nil {
					return err
				}
				return a.printKeyspaces(keyspaces)
			})
		}),
	}))
}

func (a *app) keyspaceDescribeCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:               "describe NAME",
		Short:             "Describe a keyspace, with what its partitions hold",
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.describeKeyspace(ctx, client, args[0])
			})
		}),
	}))
}

func (a *app) describeKeyspace(ctx context.Context, client *kv.Client, name string) error {
	info, err := admin.New(client).Keyspace(ctx, name)
	if err != nil {
		return err
	}
	partitions, err := admin.New(client).Partitions(ctx, name)
	// A keyspace that is being created or dropped has no partitions to show.
	if err != nil && !errors.Is(err, kv.ErrKeyspaceNotFound) {
		return err
	}
	var keys, size uint64
	leaderless := 0
	for _, p := range partitions {
		keys += p.LiveKeys
		size += p.SizeBytes
		if p.Leader == 0 {
			leaderless++
		}
	}
	list := a.list(slices.Concat(keyspaceColumns, []output.Column{
		{Name: "without leader", Number: true}, {Name: "keys", Number: true},
		{Name: "size", Number: true}}, placeColumns, limitColumns, sizeColumns, ttlColumns,
		quotaColumns)...)
	list.Row(slices.Concat(keyspaceCells(info), []any{leaderless, keys, output.Size(size)},
		placeCells(info), limitCells(info), sizeCells(info), ttlCells(info),
		quotaCells(info))...)
	return list.Flush()
}

func (a *app) keyspaceDropCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a keyspace with everything in it",
		Long: `Drop a keyspace with everything in it, including its past. A drop cannot be undone;
the command asks first, unless --yes is given.`,
		Example: `  tidemark keyspace drop fruit
  tidemark keyspace drop fruit --yes`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			question := fmt.Sprintf("This drops the keyspace %q with everything in it, for good.",
				args[0])
			if err := a.confirm(yes, question); err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := client.DropKeyspace(ctx, args[0]); err != nil {
					return err
				}
				if a.format == output.Table {
					a.say("keyspace %q is dropped", args[0])
					return nil
				}
				list := a.list(output.Column{Name: "name"}, output.Column{Name: "dropped"})
				list.Row(args[0], true)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.client(a.printing(cmd))
}

var keyspaceColumns = []output.Column{
	{Name: "name"}, {Name: "partitioning"}, {Name: "partitions", Number: true},
	{Name: "replicas", Number: true},
	{Name: "gc window"}, {Name: "commit wait"}, {Name: "state"}, {Name: "waiting for"},
}

func keyspaceCells(info admin.KeyspaceInfo) []any {
	by := "range"
	if info.Hashed() {
		by = fmt.Sprintf("hash:%d", info.HashPartitions)
	}
	return []any{info.Name, by, info.Partitions, info.Replicas, info.GCWindow, info.CommitWait,
		string(info.State), orNone(info.WaitingFor)}
}

func (a *app) printKeyspaces(keyspaces []admin.KeyspaceInfo) error {
	columns, cells := keyspaceColumns, keyspaceCells
	if a.format == output.JSON {
		columns = slices.Concat(columns, placeColumns, limitColumns, sizeColumns, ttlColumns,
			quotaColumns)
		cells = func(info admin.KeyspaceInfo) []any {
			return slices.Concat(keyspaceCells(info), placeCells(info), limitCells(info),
				sizeCells(info), ttlCells(info), quotaCells(info))
		}
	}
	list := a.list(columns...)
	for _, info := range keyspaces {
		list.Row(cells(info)...)
	}
	return list.Flush()
}
