package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) nodesCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the data nodes",
		Long: `List the data nodes: whether they are alive, how many replicas they hold, how many
partitions they lead, and their disks. A node counts as dead when nothing was heard from it for its
lease, nine seconds; its numbers are left out then. Decommissioned nodes are left out, unless --all
is given.`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error { return a.nodes(ctx, client, all) })
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that were decommissioned")
	return a.printing(a.client(cmd))
}

// notGone returns the nodes that are not decommissioned.
func notGone(nodes []admin.NodeInfo) []admin.NodeInfo {
	return slices.DeleteFunc(nodes, func(n admin.NodeInfo) bool { return n.Status == admin.NodeGone })
}

func (a *app) nodes(ctx context.Context, client *kv.Client, all bool) error {
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return err
	}
	if !all {
		nodes = notGone(nodes)
	}
	operators, err := admin.New(client).Operators(ctx)
	if err != nil {
		return err
	}
	// Some users are not permitted to read the settings.
	settings, err := admin.New(client).Placement(ctx)
	return a.printNodes(nodes, operators, err == nil && settings.Paused)
}

// printNodes lists nodes, and the operators that affect them.
func (a *app) printNodes(nodes []admin.NodeInfo, operators []admin.OperatorInfo,
	paused bool) error {
	gets, gives := map[uint64]int{}, map[uint64]int{}
	for _, o := range operators {
		gets[o.To]++
		gives[o.From]++
	}
	behind := map[uint64]int{}
	for _, node := range nodes {
		for id, count := range node.Behind {
			behind[id] += count
		}
	}
	list := a.list(
		output.Column{Name: "id", Number: true}, output.Column{Name: "address"},
		output.Column{Name: "alive"},
		output.Column{Name: "replicas", Number: true}, output.Column{Name: "leaders", Number: true},
		output.Column{Name: "disk used", Number: true, Detail: true},
		output.Column{Name: "disk free", Number: true},
		output.Column{Name: "region", Detail: true}, output.Column{Name: "zone", Detail: true},
		output.Column{Name: "tags", Detail: true}, output.Column{Name: "status", Programs: true},
		output.Column{Name: "http", Detail: true},
		output.Column{Name: "version", Detail: true},
		output.Column{Name: "notes", Sentences: true})
	for _, node := range nodes {
		var notes []string
		if node.Status != admin.NodeActive {
			text := string(node.Status)
			if paused && node.Status != admin.NodeGone {
				text += ", waits: placement is paused"
			}
			notes = append(notes, text)
		}
		if n := gets[node.ID]; n > 0 {
			notes = append(notes, "gets "+plural(n, "replica"))
		}
		if n := gives[node.ID]; n > 0 {
			notes = append(notes, "gives "+plural(n, "replica")+" away")
		}
		if !node.SilentSince.IsZero() {
			notes = append(notes, fmt.Sprintf("silent for %s",
				node.SilentFor.Round(time.Second)))
		}
		if n := behind[node.ID]; n > 0 && node.Alive {
			notes = append(notes, plural(n, "replica")+" not caught up")
		}
		if node.Alive && len(node.Silent) > 0 {
			notes = append(notes, "does not hear nodes "+numbers(node.Silent))
		}
		if node.DiskFull {
			notes = append(notes, "disk full: writes are refused")
		}
		if node.DiskSlow {
			notes = append(notes, fmt.Sprintf("disk is slow, %s a sync: leads nothing",
				node.LogSync.Round(time.Millisecond)))
		}
		if node.ClockUnhealthy {
			notes = append(notes, "clock is off: not serving")
		}
		if n := node.FailedReplicas; n > 0 {
			notes = append(notes,
				fmt.Sprintf("%s damaged or failed: see its log", plural(int(n), "replica")))
		}
		var replicas, leaders, used, free any // the last report of a lost node is out of date
		if node.Alive {
			replicas, leaders = node.Replicas, node.Leaders
			used, free = output.Size(node.DiskUsed), output.Size(node.DiskFree)
		}
		list.Row(node.ID, node.Address, output.Health(node.Alive), replicas, leaders, used, free,
			orNone(node.Region), orNone(node.Zone), orNone(strings.Join(node.Tags, ", ")),
			string(node.Status), orNone(node.HTTPAddress), orNone(node.Version),
			orNone(strings.Join(notes, "; ")))
	}
	if err := list.Flush(); err != nil {
		return err
	}
	if paused && a.format == output.Table {
		return a.print(placementPaused + "\n")
	}
	return nil
}

// numbers lists ids: "1, 2".
func numbers(ids []uint64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
}

// orNone returns a cell that is empty if the text is "".
func orNone(text string) any {
	if text == "" {
		return nil
	}
	return text
}
