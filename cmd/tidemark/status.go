package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

// statusPause is the pause of --wait between two requests. statusAttempt limits the time for one
// answer.
const (
	statusPause   = 200 * time.Millisecond
	statusAttempt = time.Second
)

func (a *app) statusCommand() *cobra.Command {
	var wait bool
	var nodes int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show cluster health",
		Long: `Show cluster health: whether the cluster is ready, and if not what it waits for; the
core's members and leader; the numbers of nodes, keyspaces and partitions; and the problems.
Problems are: partitions, or the coordination store, without a leader (unavailable); nodes that are
down, or whose replicas have not caught up yet (under replicated); nodes whose disk is full; servers
that are not ready, whose clock is wrong or which have failed replicas (unhealthy); members of the
core that do not answer or have not caught up (core at risk); and servers that do not hear each
other (cut off).

The exit code is 0 if there is no problem, as it must be before a server is stopped; 7 if everything
is served and there are problems; 8 if partitions, or the coordination store, are unavailable; and 4
if the server that answers is not ready, or the core does not answer. With --wait a cluster that
serves everything counts as 0 too.

With --wait the command asks until the cluster is ready, or --timeout is over. A cluster is ready as
soon as it has a core and a node; --nodes says for how many nodes to wait.`,
		Example: `  tidemark status
  tidemark status --wait --nodes 3 --timeout 1m && echo go`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if wait {
				return a.waitReady(ctx, nodes)
			}
			if nodes != 0 {
				return exit.Usagef("--nodes says what to wait for: give --wait with it")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.status(ctx, client, exit.Degraded)
			})
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the cluster is ready")
	cmd.Flags().IntVar(&nodes, "nodes", 0, "with --wait: wait until this many nodes are alive")
	return a.printing(a.client(cmd))
}

// placementPaused is printed where something waits for placement, or may wait for it.
const placementPaused = "placement is paused: no replica and no leader is moved, not even for a " +
	"repair; \"tidemark placement resume\" goes on"

// status prints the state of the cluster as far as it can be read. Lists come from the core.
// Without the core, the rest is even more important. degraded is the exit code for a cluster that
// serves everything but has problems.
func (a *app) status(ctx context.Context, client *kv.Client, degraded int) error {
	status, err := admin.New(client).Status(ctx)
	if err != nil {
		return err
	}
	var nodes, nodesAlive, keyspaces, partitions any
	nodeList, err := admin.New(client).Nodes(ctx)
	nodeList = notGone(nodeList)
	if err == nil {
		nodesAlive = alive(nodeList)
		nodes = output.Cell{People: fmt.Sprintf("%d of %d", nodesAlive, len(nodeList)),
			Programs: len(nodeList)}
		var keyspaceList []admin.KeyspaceInfo
		if keyspaceList, err = admin.New(client).Keyspaces(ctx); err == nil {
			count := 0
			for _, keyspace := range keyspaceList {
				count += keyspace.Partitions
			}
			keyspaces, partitions = len(keyspaceList), count
		}
	}
	var paused any
	if err == nil {
		// Some users are not permitted to read the settings.
		if settings, err := admin.New(client).Placement(ctx); err == nil {
			paused = settings.Paused
		}
	}
	var wrong health.Problems
	if err == nil {
		wrong, err = a.lookForProblems(ctx, client, nodeList, status)
	}
	if err != nil {
		wrong = health.OfStatus(status)
	}
	members := make([]string, 0, len(status.Members))
	for _, member := range status.Members {
		members = append(members, member.Address)
	}
	list := a.list(
		output.Column{Name: "cluster"}, output.Column{Name: "ready"},
		output.Column{Name: "waiting for", Programs: true},
		output.Column{Name: "nodes"}, output.Column{Name: "nodes alive", Programs: true},
		output.Column{Name: "keyspaces", Number: true}, output.Column{Name: "partitions", Number: true},
		output.Column{Name: "unavailable", Programs: true},
		output.Column{Name: "under replicated", Programs: true},
		output.Column{Name: "full", Programs: true}, output.Column{Name: "unhealthy", Programs: true},
		output.Column{Name: "core at risk", Programs: true},
		output.Column{Name: "cut off", Programs: true},
		output.Column{Name: "placement paused", Programs: true},
		output.Column{Name: "core leader"}, output.Column{Name: "core", Programs: true},
		output.Column{Name: "version", Detail: true})
	known := err == nil
	list.Row(fmt.Sprintf("%016x", status.Cluster), output.Health(status.Ready && known),
		orNone(status.WaitingFor), nodes, nodesAlive, keyspaces, partitions,
		cellOf(&wrong.Unavailable, known), cellOf(&wrong.UnderReplicated, known), cellOf(&wrong.Full, known),
		cellOf(&wrong.Unhealthy, known), cellOf(&wrong.Core, known), cellOf(&wrong.Links, known),
		paused, orNone(status.CoreLeader), members, orNone(status.Version))
	if err := list.Flush(); err != nil {
		return err
	}
	if a.format == output.Table {
		printProblems(&wrong, a.out, a.screen(), members, status.WaitingFor)
		if paused == true {
			if err := a.print(placementPaused + "\n"); err != nil {
				return err
			}
		}
	}
	if err != nil {
		if wrong.Unavailable.Total > 0 {
			return &exit.Error{Code: exit.Partly, Err: err}
		}
		return err
	}
	switch {
	case wrong.Unavailable.Total > 0:
		return exit.Silent(exit.Partly)
	case wrong.Any():
		if degraded == exit.OK {
			return nil
		}
		return exit.Silent(degraded)
	case !status.Ready:
		return exit.Silent(exit.Unavailable)
	}
	return nil
}

func alive(nodes []admin.NodeInfo) (count int) {
	for _, node := range nodes {
		if node.Alive {
			count++
		}
	}
	return count
}

// waitReady asks until the cluster is ready and the wanted number of nodes is alive. It does not
// give up if no server answers yet.
func (a *app) waitReady(ctx context.Context, want int) error {
	limited := ctx
	if a.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	last := errors.New("no server has answered")
	for {
		// Attempts are short, so that the last error says what the cluster waits for, and not only that
		// the time is over.
		attempt, cancel := context.WithTimeout(limited, statusAttempt)
		err := a.withClient(attempt, func(client *kv.Client) error {
			return a.checkReady(attempt, client, want)
		})
		cancel()
		var coded *exit.Error
		switch {
		case err == nil:
			return a.withClient(limited, func(client *kv.Client) error {
				return a.status(limited, client, exit.OK)
			})
		case errors.As(err, &coded) && coded.Code == exit.Usage:
			return err
		case limited.Err() == nil:
			last = err
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("status: interrupted, and not ready yet: %w", last)
			}
			return &exit.Error{Code: exit.Unavailable,
				Err: fmt.Errorf("status: not ready after %s: %w", a.timeout, last)}
		case <-time.After(statusPause):
		}
	}
}

// checkReady asks once.
func (a *app) checkReady(ctx context.Context, client *kv.Client, want int) error {
	status, err := admin.New(client).Status(ctx)
	if err != nil {
		return err
	}
	if !status.Ready {
		return errors.New(status.WaitingFor)
	}
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return err
	}
	if have := alive(notGone(nodes)); have < want {
		return fmt.Errorf("the cluster has %d of %d nodes", have, want)
	}
	return nil
}
