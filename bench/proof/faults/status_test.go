package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// TestStatusNamesWhatIsWrong kills one and then a second of three servers. /readyz reports that the
// cluster is not ready, and `tidemark status` names the problems and exits with a code for them.
func TestStatusNamesWhatIsWrong(t *testing.T) {
	e := newEnvironment(t, 2*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start(keyspace, hash, 3)
	status := func(ctx context.Context, code int, column, what string) error {
		command := exec.CommandContext(ctx, e.cluster.Nodes[2].Binary, "status", "--output", "json",
			"--timeout", "2s", "--endpoints", e.cluster.Nodes[2].Address())
		out, err := command.Output()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var row map[string]any
		if len(out) > 0 {
			if bad := json.Unmarshal([]byte(fleet.FirstLine(string(out))), &row); bad != nil {
				return fmt.Errorf("%q is no JSON: %w", out, bad)
			}
		}
		if got := command.ProcessState.ExitCode(); got != code ||
			!strings.Contains(fmt.Sprint(row[column]), what) {
			return fmt.Errorf("exit code %d, %s: %v (%v) in %s", got, column, row[column], err, out)
		}
		return nil
	}
	e.wait(20*time.Second, "all to be well",
		func(ctx context.Context) error { return status(ctx, 0, "unavailable", "") })
	e.must(e.cluster.Nodes[0].Kill(), "kill")
	e.wait(30*time.Second, "one server down to be named", func(ctx context.Context) error {
		return status(ctx, 7, "under_replicated", e.cluster.Nodes[0].Address())
	})
	e.must(e.cluster.Nodes[2].Ready(e.ctx), "ready with one of three servers down")
	e.must(e.cluster.Nodes[1].Kill(), "kill")
	e.wait(40*time.Second, "partitions without a leader to be named",
		func(ctx context.Context) error {
			return status(ctx, 8, "unavailable", "of "+keyspace+": no leader")
		})
	if err := e.cluster.Nodes[2].Ready(e.ctx); err == nil {
		t.Error("/readyz says ok though two of three servers are down")
	}
}
