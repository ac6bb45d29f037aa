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
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) nodeCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "node",
		Short: "Drain and decommission data nodes",
		Long: `Take data nodes out of service, for a while or for good, or cancel that.

The request is recorded in the consistent core, and goes on whether the command waits for it or not:
interrupt it at any time, and give it again to see the progress.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		a.nodeStatusCommand("drain", admin.NodeDraining, "Have a node lead nothing",
			`Have a node lead nothing, and give it nothing new. It keeps its replicas, so that it can
be stopped for a while without a pause for any client. "tidemark node undo" takes it back.`),
		a.nodeStatusCommand("decommission", admin.NodeDecommissioning, "Take a node out for good",
			`Move everything from a node to other nodes, and then let it go for good: its id is refused
afterwards, and its directory can be deleted. It is refused if the other nodes have no place for
what it holds. Until it is done, "tidemark node undo" takes it back; what has moved stays moved.`),
		a.nodeStatusCommand("undo", admin.NodeActive, "Take a drain or decommissioning back",
			`Have a node hold replicas and lead again.`))
	return root
}

func (a *app) nodeStatusCommand(name string, want admin.NodeStatus,
	short, long string) *cobra.Command {
	var dry, background, quiet bool
	cmd := &cobra.Command{
		Use:   name + " NODE [--dry-run]",
		Short: short,
		Long:  long,
		Example: fmt.Sprintf(`  tidemark node %s 4 --dry-run
  tidemark node %s 4`, name, name),
		Args:              arguments("NODE", 1, 1),
		ValidArgsFunction: a.complete(nodesOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			node, err := parseNode(args[0])
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				set := admin.New(client).SetNodeStatus
				if dry {
					set = admin.New(client).CheckNodeStatus
				}
				p, err := set(ctx, node, want)
				if err == nil && !dry && !background {
					p, err = a.awaitNode(ctx, client, node, want, p, quiet)
				}
				if err != nil {
					return err
				}
				return a.printNodeProgress(ctx, client, node, p)
			})
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false,
		"only say what would be moved, and what is in the way")
	cmd.Flags().BoolVar(&background, "background", false, "do not wait until it is done")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	return a.client(a.printing(cmd))
}

// parseNode reads the number of a node: 3 or n3.
func parseNode(text string) (uint64, error) {
	node, err := strconv.ParseUint(strings.TrimPrefix(text, "n"), 10, 64)
	if err != nil || node == 0 {
		return 0, exit.Usagef("%q is no node: give the number that \"tidemark nodes\" shows", text)
	}
	return node, nil
}

// sayInTheWay is the time for which an obstacle must last before it is shown. Limits on operators
// are frequent short obstacles.
const sayInTheWay = 10 * time.Second

// awaitNode shows the progress of a node to the wanted status until it is reached.
func (a *app) awaitNode(ctx context.Context, client *kv.Client, node uint64, want admin.NodeStatus,
	p admin.NodeProgress, quiet bool) (admin.NodeProgress, error) {
	if want == admin.NodeActive {
		return p, nil
	}
	total, unit := p.Leaders, "leaders"
	if want == admin.NodeDecommissioning {
		total, unit = p.Replicas, "replicas"
	}
	bar := progress.Start(progress.Options{Out: a.err, Terminal: a.errTerminal, Width: a.errWidth,
		Quiet: quiet,
		What:  fmt.Sprintf("node %d", node), Unit: unit, Total: uint64(total)})
	defer bar.Stop()
	way, said, since := "", "", time.Now()
	for {
		now, err := persist(ctx, func() (admin.NodeProgress, error) {
			return admin.New(client).CheckNodeStatus(ctx, node, want)
		})
		if err != nil {
			return p, err
		}
		now.Before, p = p.Before, now
		left := p.Leaders
		if want == admin.NodeDecommissioning {
			left = p.Replicas
		}
		bar.Set(uint64(max(0, total-left)))
		switch {
		case p.Status == admin.NodeGone, want == admin.NodeDraining && p.Status != admin.NodeActive &&
			p.LeadersLeft == 0:
			return p, nil
		case p.Status == admin.NodeActive:
			return p, fmt.Errorf("node %d was made active again meanwhile", node)
		case want == admin.NodeDecommissioning && p.Status != want:
			return p, fmt.Errorf("node %d is %s meanwhile, and keeps its replicas", node, p.Status)
		}
		if p.InTheWay != way {
			way, since = p.InTheWay, time.Now()
		}
		if way != "" && way != said && time.Since(since) >= sayInTheWay && !quiet {
			said = way
			a.say("in the way: %s", said)
		}
		select {
		case <-ctx.Done():
			return p, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

func (a *app) printNodeProgress(ctx context.Context, client *kv.Client, node uint64,
	p admin.NodeProgress) error {
	list := a.list(output.Column{Name: "node", Number: true}, output.Column{Name: "status"},
		output.Column{Name: "replicas", Number: true}, output.Column{Name: "leaders", Number: true},
		output.Column{Name: "size", Number: true}, output.Column{Name: "in the way", Sentences: true})
	way := p.Obstacles
	if len(way) == 0 && p.InTheWay != "" {
		way = []string{p.InTheWay}
	}
	list.Row(node, string(p.Status), p.Replicas, p.Leaders, output.Size(p.Bytes),
		orNone(strings.Join(way, "; ")))
	if err := list.Flush(); err != nil {
		return err
	}
	if p.Status == admin.NodeGone {
		return a.sayGone(ctx, client, node)
	}
	return nil
}

// sayGone tells the user what to do about a node that is gone. Its server may also be a member of
// the core.
func (a *app) sayGone(ctx context.Context, client *kv.Client, node uint64) error {
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return err
	}
	core, err := admin.New(client).Core(ctx)
	if err != nil {
		return err
	}
	a.say("%s", goneText(node, nodes, core))
	return nil
}

// goneText returns the text of sayGone.
func goneText(node uint64, nodes []admin.NodeInfo, core admin.Core) string {
	address := ""
	for _, n := range nodes {
		if n.ID == node {
			address = n.Address
		}
	}
	for _, n := range nodes {
		if n.Address == address && n.ID > node && n.Status != admin.NodeGone {
			return fmt.Sprintf("node %d is gone for good; the server at its address is node %d", node,
				n.ID)
		}
	}
	for _, m := range core.Members {
		if m.Address == address {
			return fmt.Sprintf("node %d is gone for good. Its server is a member of the core: leave it "+
				"running, or take it out with \"tidemark core remove %s\" first", node, address)
		}
	}
	return fmt.Sprintf("node %d is gone for good: stop its server; its directory can be deleted",
		node)
}
