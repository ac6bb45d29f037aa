package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) placementCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "placement",
		Short: "Show, pause, resume and limit the moving of replicas",
		Long: `Show or change the settings of placement. Replicas move by themselves: where one was
lost, where placement rules want it, and where nodes are loaded unevenly. "tidemark operators" shows
changes under way, "tidemark events" finished changes, and "tidemark why" the reasons.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ask := func(use, short, long string,
		do func(context.Context, *kv.Client) (admin.PlacementSettings, error)) *cobra.Command {
		return a.client(a.printing(&cobra.Command{Use: use, Short: short, Long: long,
			Args: arguments("", 0, 0),
			RunE: a.verb(func(ctx context.Context, _ []string) error {
				return a.withClient(ctx, func(client *kv.Client) error {
					s, err := do(ctx, client)
					if err != nil {
						return err
					}
					return a.printPlacement(s)
				})
			})}))
	}
	root.AddCommand(
		ask("show", "Show what placement may do",
			"Show whether placement is paused, and its limits.",
			func(ctx context.Context, c *kv.Client) (admin.PlacementSettings, error) {
				return admin.New(c).Placement(ctx)
			}),
		ask("pause", "Begin nothing new",
			`Begin no change of replicas, not even a repair, until "tidemark placement resume". What is
under way goes on.`,
			func(ctx context.Context, c *kv.Client) (admin.PlacementSettings, error) {
				return admin.New(c).PausePlacement(ctx, true)
			}),
		ask("resume", "Take a pause back", "Have replicas move by themselves again.",
			func(ctx context.Context, c *kv.Client) (admin.PlacementSettings, error) {
				return admin.New(c).PausePlacement(ctx, false)
			}),
		a.placementLimitsCommand())
	return root
}

func (a *app) placementLimitsCommand() *cobra.Command {
	var s admin.PlacementSettings
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Change delays and limits",
		Long: "Change how soon and how much placement moves at a time. What is not given stays as " +
			"it is.",
		Example: `  tidemark placement limits --repair-delay 10m
  tidemark placement limits --node-snapshots 2 --zone-snapshots 16`,
		Args: arguments("", 0, 0),
	}
	flags := cmd.Flags()
	flags.DurationVar(&s.RepairDelay, "repair-delay", 0,
		"how long a node is silent before its replicas are replaced (at first 5m)")
	flags.DurationVar(&s.Pause, "pause", 0,
		"pause of a partition after a change; repairs do not wait for it (at first 10m)")
	flags.DurationVar(&s.MergePause, "merge-pause", 0,
		"for how long two neighbours must be calm before they are merged (at first 10m)")
	flags.IntVar(&s.NodeSnapshots, "node-snapshots", 0,
		"how many snapshots a node receives at a time, and sends (at first 4)")
	flags.IntVar(&s.ZoneSnapshots, "zone-snapshots", 0,
		"the same for all nodes of a zone together (at first 64)")
	flags.IntVar(&s.Operators, "operators", 0,
		"how many changes are under way in all (at first 1024)")
	cmd.RunE = a.verb(func(ctx context.Context, _ []string) error {
		given := false
		for _, name := range []string{"repair-delay", "pause", "merge-pause", "node-snapshots",
			"zone-snapshots", "operators"} {
			given = given || flags.Changed(name)
		}
		switch {
		case !given:
			return exit.Usagef("say what to change; \"tidemark placement show\" shows what holds")
		case flags.Changed("repair-delay") && s.RepairDelay < time.Second,
			flags.Changed("pause") && s.Pause < time.Second,
			flags.Changed("merge-pause") && s.MergePause < time.Second:
			return exit.Usagef("a delay is at least 1s")
		}
		return a.withClient(ctx, func(client *kv.Client) error {
			now, err := admin.New(client).LimitPlacement(ctx, s)
			if err != nil {
				return err
			}
			return a.printPlacement(now)
		})
	})
	return a.client(a.printing(cmd))
}

func (a *app) printPlacement(s admin.PlacementSettings) error {
	list := a.list(output.Column{Name: "paused"}, output.Column{Name: "repair delay"},
		output.Column{Name: "pause"}, output.Column{Name: "merge pause"},
		output.Column{Name: "node snapshots", Number: true},
		output.Column{Name: "zone snapshots", Number: true},
		output.Column{Name: "operators", Number: true})
	list.Row(s.Paused, s.RepairDelay, s.Pause, s.MergePause, s.NodeSnapshots, s.ZoneSnapshots,
		s.Operators)
	return list.Flush()
}

func (a *app) transferCommand() *cobra.Command {
	var to uint64
	var background bool
	cmd := &cobra.Command{
		Use:   "transfer PARTITION --to NODE",
		Short: "Transfer the leadership of a partition",
		Long: `Make the replica of a partition on a node its leader, now and from now on. Reads and
writes pause for a moment.`,
		Example:           `  tidemark transfer 17 --to 2`,
		Args:              arguments("PARTITION", 1, 1),
		ValidArgsFunction: a.complete(partitionsOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			if to == 0 {
				return exit.Usagef("say to which node: --to NODE")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if err := admin.New(client).TransferLeader(ctx, partition, to); err != nil {
					return err
				}
				outcome := "under way"
				if !background {
					if err := a.followOperator(ctx, client, partition); err != nil {
						return err
					}
					if outcome, err = a.lastOutcome(ctx, client, partition); err != nil {
						return err
					}
					if err := handedOver(partition, to, outcome); err != nil {
						return err
					}
				}
				list := a.list(output.Column{Name: "partition", Number: true},
					output.Column{Name: "to", Number: true}, output.Column{Name: "outcome"})
				list.Row(partition, to, outcome)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "the node that is to lead")
	a.completeFlag(cmd, "to", nodesOffered)
	cmd.Flags().BoolVar(&background, "background", false, "do not wait until it is done")
	return a.client(a.printing(cmd))
}

// handedOver returns an error if a transfer has ended in another way.
func handedOver(partition, to uint64, outcome string) error {
	if outcome == "done" || outcome == "ended" {
		return nil
	}
	return fmt.Errorf("the lead of partition %d was not handed to node %d: %s",
		partition, to, outcome)
}

// lastOutcome returns how the last operator of a partition ended.
func (a *app) lastOutcome(ctx context.Context, client *kv.Client,
	partition uint64) (string, error) {
	events, err := persist(ctx, func() ([]admin.Event, error) {
		return admin.New(client).Events(ctx, partition, 0, 1)
	})
	if err != nil || len(events) == 0 {
		return "ended", err
	}
	return events[0].Outcome, nil
}

// parsePartition reads the number of a partition: 17 or p17.
func parsePartition(text string) (uint64, error) {
	partition, err := strconv.ParseUint(strings.TrimPrefix(text, "p"), 10, 64)
	if err != nil || partition == 0 {
		return 0, exit.Usagef("%q is no partition: give the number that \"tidemark partitions\" "+
			"shows", text)
	}
	return partition, nil
}
