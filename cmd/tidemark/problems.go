package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

const (
	// secondLooks is the number of times that the command looks again at partitions without a known
	// leader whose nodes are alive: after a change of its own leader, the core learns of the
	// partitions' leaders within some seconds.
	secondLooks    = 4
	secondLookWait = time.Second
)

// lookForProblems asks the core for problems. status is the answer of the server that was asked
// first. If this server is not ready, that is not reported twice.
func (a *app) lookForProblems(ctx context.Context, client *kv.Client,
	nodes []admin.NodeInfo, status admin.Status) (health.Problems, error) {
	for look := 0; ; look++ {
		partitions, err := admin.New(client).Partitions(ctx, "")
		if err != nil {
			return health.Problems{}, err
		}
		core, err := admin.New(client).CoreHealth(ctx)
		if err != nil {
			return health.Problems{}, err
		}
		for i := range nodes {
			if nodes[i].ID == status.Node && !status.Ready {
				nodes[i].NotReady = nil
			}
		}
		found, again := health.Judge(nodes, partitions, core)
		if !again || look == secondLooks {
			return found, nil
		}
		select {
		case <-time.After(secondLookWait):
		case <-ctx.Done():
			return found, nil
		}
		if nodes, err = admin.New(client).Nodes(ctx); err != nil {
			return health.Problems{}, err
		}
	}
}

// cellOf returns the list for programs. It returns null if the state is not known, so that an empty
// list means no problems.
func cellOf(n *health.List, known bool) any {
	switch {
	case n.Total == 0 && !known:
		return nil
	case n.Total == 0:
		return []string{}
	}
	return n.Lines()
}

// printProblems lists, below the table of status, the problems that are too long for a column, one
// a line.
func printProblems(p *health.Problems, out io.Writer, screen output.Screen, core []string,
	waiting string) {
	say := func(tone output.Tone, what string, lines ...string) {
		for _, line := range lines {
			text := screen.Text(what + ": " + output.Plain(line) + "\n")
			fmt.Fprint(out, screen.Paint(tone, what), text[len(what):])
		}
	}
	if len(core) > 1 {
		say(output.Plainly, "core", strings.Join(core, ", "))
	}
	if waiting != "" {
		say(output.Warning, "not ready", waiting)
	}
	say(output.Bad, "unavailable", p.Unavailable.Lines()...)
	say(output.Warning, "under replicated", p.UnderReplicated.Lines()...)
	say(output.Warning, "full", p.Full.Lines()...)
	say(output.Warning, "unhealthy", p.Unhealthy.Lines()...)
	say(output.Warning, "core at risk", p.Core.Lines()...)
	say(output.Warning, "cut off", p.Links.Lines()...)
}
