package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func (a *app) slowCommand() *cobra.Command {
	var q admin.SlowQuery
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "slow",
		Short: "List requests that took long, and where their time went",
		Long: `List the requests that took longer than --slow-threshold of the server that answered them,
the latest first. A server remembers its newest 256 and the 64 slowest of the last hour, until it
is stopped. The parts of a request add up to the time that it took at the server:

  queue      it waited for a processor, or in the queue of its partition
  latch      a read waited for writes in flight, a write for room among them
  lock       it waited for the lock of a transaction
  proof      the leader confirmed its leadership, or a timestamp had to be closed
  evaluate   it was evaluated, which includes reading
  log        the entry waited for the leader's log
  sync       the leader's log wrote and synced it
  replicate  the entry waited for a quorum: the network, and the logs of the followers
  apply      the entry was applied
  clock      the answer waited until all clocks had passed its timestamp

The table shows the parts that took at least a tenth of the time. --output json and tsv have all
parts, sizes, clients and users, and for those that waited for a lock its key and transaction.
--redact shows hashes in the place of keys: equal keys of a server have equal hashes.

If servers do not answer, stderr names them with the reasons; the others are listed all the same,
and the exit code is not 0.`,
		Example: `  tidemark slow --since 5m
  tidemark slow --keyspace fruit --min 2s --output json`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if q.Limit < 1 || since < 0 || q.Least < 0 {
				return exit.Usagef("--limit is at least 1, and --since and --min are not negative")
			}
			if since > 0 {
				q.After = time.Now().Add(-since)
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				found, err := admin.New(client).SlowRequests(ctx, q)
				return a.unansweredAfter(err, func() error { return a.printSlow(found) })
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Keyspace, "keyspace", "", "only requests of this keyspace")
	flags.Uint64Var(&q.Node, "node", 0, "only requests that this node has answered")
	flags.DurationVar(&since, "since", 0, "only requests answered since then, such as 10m")
	flags.DurationVar(&q.Least, "min", 0, "only requests that took at least this long")
	flags.IntVar(&q.Limit, "limit", 50, "requests to list at most")
	flags.BoolVar(&q.Redact, "redact", false, "show hashes in the place of keys")
	return a.printing(a.client(cmd))
}

func (a *app) printSlow(found admin.SlowRequests) error {
	columns := []output.Column{{Name: "began"}, {Name: "took", Number: true}, {Name: "kind"},
		{Name: "keyspace"}, {Name: "partition", Number: true}, {Name: "node", Number: true},
		{Name: "key"}, {Name: "parts"}, {Name: "error"}}
	wide := a.format != output.Table
	if wide {
		columns = append(columns, output.Column{Name: "key bytes", Number: true},
			output.Column{Name: "keys", Number: true}, output.Column{Name: "spans", Number: true},
			output.Column{Name: "request bytes", Number: true},
			output.Column{Name: "response bytes", Number: true}, output.Column{Name: "client"},
			output.Column{Name: "user"}, output.Column{Name: "lock key"},
			output.Column{Name: "lock transaction"}, output.Column{Name: "trace"})
	}
	list := a.list(columns...)
	for _, x := range found.Requests {
		cells := []any{x.Began, x.Took.Round(time.Microsecond), x.Kind, orNone(x.Keyspace),
			orNoNumber(x.Partition), x.Node, keyOrHash(x.Key, x.KeyHash), a.partsCell(x),
			orNone(x.Error)}
		if wide {
			cells = append(cells, x.KeyBytes, x.Keys, x.Spans, x.RequestBytes, x.ResponseBytes,
				orNone(x.ClientAddress), orNone(x.User), keyOrHash(x.Lock.Key, x.Lock.KeyHash),
				orNone(x.Lock.Transaction), orNone(x.Trace))
		}
		list.Row(cells...)
	}
	if err := list.Flush(); err != nil {
		return err
	}
	for _, n := range found.Nodes {
		if n.Threshold == 0 {
			a.say("node %d keeps no slow requests: its --slow-threshold is 0", n.Node)
		}
	}
	return nil
}

// orNoNumber returns the cell of a number. The cell is empty if the number is 0.
func orNoNumber(n uint64) any {
	if n == 0 {
		return nil
	}
	return n
}

// keyOrHash returns the cell of a key, or of a hash in the place of a key.
func keyOrHash(key []byte, hash uint64) any {
	switch {
	case hash != 0:
		return fmt.Sprintf("#%016x", hash)
	case len(key) == 0:
		return nil
	}
	return key
}

// partsCell returns the cell of the parts of a request. People see the parts that took at least a
// tenth of the time, the longest first, and the transaction that blocked the request.
func (a *app) partsCell(x admin.SlowRequest) any {
	programs := make([]string, len(x.Parts))
	for i, p := range x.Parts {
		programs[i] = fmt.Sprintf("%s=%s", p.Name, p.Took)
	}
	parts := slices.Clone(x.Parts)
	slices.SortStableFunc(parts, func(a, b admin.RequestPart) int { return int(b.Took - a.Took) })
	var people []string
	for _, p := range parts {
		if p.Took < x.Took/10 {
			break
		}
		word := fmt.Sprintf("%s %s", p.Name, p.Took.Round(100*time.Microsecond))
		if p.Name == "lock" && x.Lock.Transaction != "" {
			word += " of " + x.Lock.Transaction
		}
		people = append(people, word)
	}
	return output.Cell{People: strings.Join(people, ", "), Programs: programs}
}
