package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) splitCommand() *cobra.Command {
	var encoding argument.Encoding
	var at string
	var wait bool
	cmd := &cobra.Command{
		Use:   "split KEYSPACE --at KEY",
		Short: "Split a partition in two",
		Long: `Split the partition of a keyspace that contains a key: the key begins a new
partition, on the same nodes. No data is copied; reads and writes pause for a moment. In a hash
keyspace only the partition splits that the key belongs to.

Partitions split by themselves when they or their load grow. Neighbours that stay small merge again,
unless the keyspace has --no-auto.

The split is recorded in the consistent core, and goes on whether this command waits for it or not;
"tidemark operators" shows it. Until the split is carried out, "tidemark move PARTITION --cancel"
cancels it.`,
		Example: `  tidemark split users --at m
  tidemark split users --at m --wait
  tidemark split events --at 00ff17 --hex`,
		Args:              arguments("KEYSPACE", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if at == "" {
				return exit.Usagef("say at which key: --at KEY")
			}
			key, err := encoding.DecodeKey(at)
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				split, err := a.split(ctx, client, args[0], key, wait)
				if err != nil {
					return err
				}
				return a.printSplits([]asked{{split, key, wait}})
			})
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "the key that begins the new partition (required)")
	cmd.Flags().BoolVar(&wait, "wait", false,
		"wait until both partitions are in the table and the new one has a leader")
	encoding.Register(cmd)
	return a.client(a.printing(cmd))
}

// asked is a requested split, and whether the command has waited for its end.
type asked struct {
	admin.Split
	at     []byte
	waited bool
}

func (a *app) printSplits(all []asked) error {
	list := a.list(output.Column{Name: "operator", Number: true},
		output.Column{Name: "partition", Number: true}, output.Column{Name: "child", Number: true},
		output.Column{Name: "split at"}, output.Column{Name: "outcome"})
	for _, s := range all {
		outcome := "under way"
		switch {
		case s.Operator == 0:
			outcome = "is a boundary already"
		case s.waited:
			outcome = "split"
		}
		list.Row(orNumber(s.Operator), s.Partition, s.Child, s.at, outcome)
	}
	return list.Flush()
}

// split requests a split, and waits for its end if wait is set.
func (a *app) split(ctx context.Context, client *kv.Client, keyspace string, key []byte, wait bool,
) (admin.Split, error) {
	split, err := admin.New(client).SplitPartition(ctx, keyspace, key)
	if err == nil && wait {
		err = a.awaitSplit(ctx, client, keyspace, split)
	}
	return split, err
}

// awaitSplit shows the progress of a split on standard error until the new partition has a leader.
func (a *app) awaitSplit(ctx context.Context, client *kv.Client, keyspace string,
	s admin.Split) error {
	mine := func(o admin.OperatorInfo) bool { return o.ID == s.Operator }
	if err := a.followOperators(ctx, client, mine); err != nil {
		return err
	}
	said := false
	for pause := looking(0); ; {
		all, err := admin.New(client).Partitions(ctx, keyspace)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(p admin.PartitionInfo) bool { return p.ID == s.Child })
		switch {
		case i < 0:
			outcome, err := a.lastOutcome(ctx, client, s.Child)
			if err != nil {
				return err
			}
			return fmt.Errorf("partition %d did not split: %s", s.Partition, outcome)
		case all[i].Leader != 0:
			return nil
		case !said:
			said = true
			a.say("partition %d: split; partition %d, to the right of it, has no leader yet", s.Partition,
				s.Child)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause.next()):
		}
	}
}

// splitAll splits a keyspace at several keys, one after the other.
func (a *app) splitAll(ctx context.Context, client *kv.Client, keyspace string, at [][]byte) error {
	for _, key := range at {
		if _, err := a.split(ctx, client, keyspace, key, true); err != nil {
			return err
		}
	}
	return nil
}

// sizeFlags say how large the partitions of a keyspace become.
type sizeFlags struct {
	split, merge argument.Size
	noAuto       bool
	flags        *pflag.FlagSet
}

// register adds the flags. split and merge are texts for the defaults.
func (f *sizeFlags) register(cmd *cobra.Command, split, merge string) {
	f.flags = cmd.Flags()
	f.flags.Var(&f.split, "split-size", "from which size on a partition splits (default: "+split+")")
	f.flags.Var(&f.merge, "merge-size",
		"below which size two neighbours together merge (default: "+merge+")")
	f.flags.BoolVar(&f.noAuto, "no-auto", false, "split and merge only when that is asked for")
}

// options returns the options of the given flags.
func (f *sizeFlags) options() (options []kv.SizeOption) {
	if f.flags.Changed("split-size") {
		options = append(options, kv.SplitSize(uint64(f.split)))
	}
	if f.flags.Changed("merge-size") {
		options = append(options, kv.MergeSize(uint64(f.merge)))
	}
	if f.flags.Changed("no-auto") {
		options = append(options, kv.AutoSplit(!f.noAuto))
	}
	return options
}

// For people, the table has the split size, or says that partitions split only on request.
var sizeColumns = []output.Column{{Name: "split size", Number: true},
	{Name: "merge size", Number: true, Programs: true}, {Name: "auto split", Programs: true}}

func sizeCells(info admin.KeyspaceInfo) []any {
	split := output.Cell{People: output.Size(info.SplitSize), Programs: output.Size(info.SplitSize)}
	if !info.AutoSplit {
		split.People = "when asked"
	}
	return []any{split, output.Size(info.MergeSize), info.AutoSplit}
}
