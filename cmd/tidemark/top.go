package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/top"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

const (
	// leastTopPause is the shortest pause between two pictures.
	leastTopPause = 500 * time.Millisecond
	// topPartitionsPause is the interval at which the list of partitions is read again.
	topPartitionsPause = 30 * time.Second
	// topSlow is the number of slow requests to show, from the last topSlowAge.
	topSlow    = 8
	topSlowAge = 5 * time.Minute
)

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what the nodes do: rates, latencies, hot partitions, slow requests",
		Long: `Show what each node does, and again every two seconds: reads and writes in a second over
the last ten seconds, how long they take (half of them, and all but one in a hundred, over the last
half minute), processor (100 % is one processor), memory, sync of the log, free disk space; then the
partitions with the most requests, and the slow requests of the last five minutes. q or Ctrl-C ends
it. With --once, with --output, or when the output is no terminal, the command prints once; in json
and tsv only the nodes, with times in seconds.

While authentication is enabled, processor, memory, and slow requests are shown to users who may see
them: those of nodes need the role root.`,
		Example: `  tidemark top
  tidemark top --once`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if every < leastTopPause {
				return exit.Usagef("--every is at least %v", leastTopPause)
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				watch := &topWatch{cluster: admin.New(client), known: map[uint64]admin.LoadHistory{}}
				if once || !a.outTerminal || a.keys == nil || a.format != output.Table {
					view, err := watch.look(ctx)
					if err != nil {
						return err
					}
					return a.printView(view)
				}
				return a.top(ctx, watch, every)
			})
		}),
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "the pause between two pictures")
	cmd.Flags().BoolVar(&once, "once", false, "print one picture")
	return a.printing(a.client(cmd))
}

// printView prints a view once. For programs it prints the nodes. For people it also prints the
// partitions and the slow requests.
func (a *app) printView(view *top.View) error {
	number := func(name string) output.Column { return output.Column{Name: name, Number: true} }
	list := a.list(number("node"), output.Column{Name: "alive"}, number("reads/s"),
		number("writes/s"), number("read p99"), number("write p99"), number("processors"),
		number("memory"), number("sync"), number("disk free"),
		output.Column{Name: "address", Detail: true})
	for _, n := range view.Rows() {
		var processors, memory any
		if n.Examined {
			processors, memory = fmt.Sprintf("%.2f", n.Processors), output.Size(n.Memory)
		}
		list.Row(n.ID, output.Health(n.Alive), fmt.Sprintf("%.1f", n.Reads),
			fmt.Sprintf("%.1f", n.Writes), timed(n.ReadMost), timed(n.WriteMost), processors, memory,
			timed(n.LogSync), output.Size(n.DiskFree), n.Address)
	}
	if err := list.Flush(); err != nil || a.format != output.Table {
		return err
	}
	if hot := view.Hottest(); len(hot) > 0 {
		if err := a.print("\n"); err != nil {
			return err
		}
		list := a.list(number("partition"), output.Column{Name: "keyspace"}, number("reads/s"),
			number("writes/s"), number("bytes/s"), number("node"))
		for _, p := range hot {
			list.Row(p.ID, orNone(p.Keyspace), fmt.Sprintf("%.1f", p.Reads),
				fmt.Sprintf("%.1f", p.Writes), output.Size(uint64(p.Bytes)), p.Node)
		}
		if err := list.Flush(); err != nil {
			return err
		}
	}
	if len(view.Slow) == 0 {
		return nil
	}
	if err := a.print("\n"); err != nil {
		return err
	}
	return a.printSlow(admin.SlowRequests{Requests: view.Slow})
}

// timed returns the cell of a time. The cell is empty if the time is not known.
func timed(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d
}

// top draws one picture after the other until q or Ctrl-C is pressed, or ctx ends.
func (a *app) top(ctx context.Context, watch *topWatch, every time.Duration) error {
	restore, err := a.keys.raw()
	if err != nil {
		return fmt.Errorf("the terminal cannot be used: %w", err)
	}
	defer restore()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { // ends with the process: a read of the keyboard cannot be interrupted
		key := make([]byte, 1)
		for {
			if n, err := a.keys.Read(key); err != nil || n == 1 && (key[0] == 'q' || key[0] == keyCtrlC) {
				end(errTopEnds)
				return
			}
		}
	}()
	fmt.Fprint(a.out, "\x1b[?1049h\x1b[?25l") // use the alternate screen, without a cursor
	defer fmt.Fprint(a.out, "\x1b[?25h\x1b[?1049l")
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		view, err := watch.look(ctx)
		if context.Cause(ctx) == errTopEnds {
			return nil
		}
		width, height := a.keys.size()
		var lines []string
		if err != nil {
			lines = []string{exit.Message(err), "", "the next look is in " + every.String()}
		} else {
			lines = view.Lines(max(0, height-1))
		}
		fmt.Fprint(a.out, picture(lines, width))
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == errTopEnds {
				return nil
			}
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// errTopEnds ends a view after a key press.
var errTopEnds = errors.New("ended by a key")

// picture draws lines over the present content of the screen.
func picture(lines []string, width int) string {
	var text strings.Builder
	text.WriteString("\x1b[H")
	for _, line := range lines {
		runes := []rune(output.Plain(line))
		if width > 0 && len(runes) > width {
			runes = runes[:width]
		}
		text.WriteString(string(runes) + "\x1b[K\r\n")
	}
	text.WriteString("\x1b[J")
	return text.String()
}

// topCluster is the part of *admin.Client that a topWatch uses.
type topCluster interface {
	Nodes(context.Context) ([]admin.NodeInfo, error)
	Partitions(ctx context.Context, keyspace string) ([]admin.PartitionInfo, error)
	CoreHealth(context.Context) (admin.Core, error)
	LoadHistories(context.Context, []admin.NodeInfo,
		func(node uint64) admin.LoadHistorySince) []admin.LoadHistory
	Examine(ctx context.Context, server string, others []string) (admin.Examination, error)
	SlowRequests(context.Context, admin.SlowQuery) (admin.SlowRequests, error)
}

// topWatch reads one View after the other from the cluster, and asks only for new data.
type topWatch struct {
	cluster topCluster
	// known has the histories of the nodes that are listed.
	known map[uint64]admin.LoadHistory
	// noMachines and noSlow are set when the user may not see the data. The cluster is not asked for
	// it again, because it logs each refusal.
	noMachines, noSlow bool
	// keyspaces maps partitions to their keyspaces, as they were at that time.
	keyspaces map[uint64]string
	at        time.Time
	problems  int
}

// look reads a View from the cluster. The list of nodes is required. All other data is left out if
// it cannot be read.
func (w *topWatch) look(ctx context.Context) (*top.View, error) {
	nodes, err := w.cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	view := &top.View{At: time.Now(), Nodes: notGone(nodes)}
	w.lookAtPartitions(ctx, view)
	alive := slices.DeleteFunc(slices.Clone(view.Nodes), func(n admin.NodeInfo) bool {
		return !n.Alive
	})
	for _, h := range w.cluster.LoadHistories(ctx, alive, w.since) {
		if h.Err == nil {
			w.known[h.Node] = joined(w.known[h.Node], h)
		}
	}
	maps.DeleteFunc(w.known, func(node uint64, _ admin.LoadHistory) bool {
		return !slices.ContainsFunc(view.Nodes, func(n admin.NodeInfo) bool { return n.ID == node })
	})
	view.Histories = slices.Collect(maps.Values(w.known))
	if !w.noMachines {
		view.Machines, w.noMachines = w.machines(ctx, alive)
	}
	if !w.noSlow {
		slow, err := w.cluster.SlowRequests(ctx, admin.SlowQuery{Limit: topSlow,
			After: view.At.Add(-topSlowAge)})
		view.Slow, w.noSlow = slow.Requests, refusedToUser(err)
	}
	return view, nil
}

// refusedToUser reports whether an error says that the user may not see the answer.
func refusedToUser(err error) bool {
	return errors.Is(err, kv.ErrPermissionDenied) || errors.Is(err, kv.ErrUnauthenticated)
}

// lookAtPartitions reads the partitions and the problems at intervals, because a list may be long.
func (w *topWatch) lookAtPartitions(ctx context.Context, view *top.View) {
	if view.At.Sub(w.at) >= topPartitionsPause {
		partitions, err := w.cluster.Partitions(ctx, "")
		core, coreErr := w.cluster.CoreHealth(ctx)
		if err == nil && coreErr == nil {
			w.at, w.keyspaces = view.At, make(map[uint64]string, len(partitions))
			for _, p := range partitions {
				w.keyspaces[p.ID] = p.Keyspace
			}
			found, _ := health.Judge(view.Nodes, partitions, core)
			w.problems = found.Total()
		}
	}
	view.Keyspaces, view.Problems = w.keyspaces, w.problems
}

// since returns the time from which on a node's history is requested.
func (w *topWatch) since(node uint64) admin.LoadHistorySince {
	since := admin.LoadHistorySince{Partitions: true}
	if h := w.known[node]; len(h.Points) > 0 {
		since.Points = h.Points[len(h.Points)-1].Begin
		if len(h.Slots) > 0 {
			since.Slots = h.Slots[len(h.Slots)-1].Begin
		}
	}
	return since
}

// joined appends to a history, and keeps the last minutes. The new history replaces the known one
// from the first point of the new one on.
func joined(known, next admin.LoadHistory) admin.LoadHistory {
	const kept = 12
	if len(next.Points) > 0 {
		first := next.Points[0].Begin
		known.Points = slices.DeleteFunc(known.Points, func(p admin.LoadPoint) bool {
			return !p.Begin.Before(first)
		})
	}
	if len(next.Slots) > 0 {
		first := next.Slots[0].Begin
		known.Slots = slices.DeleteFunc(known.Slots, func(s admin.LoadSlot) bool {
			return !s.Begin.Before(first)
		})
	}
	points, slots := append(known.Points, next.Points...), append(known.Slots, next.Slots...)
	return admin.LoadHistory{Node: next.Node, Points: points[max(0, len(points)-kept):],
		Slots: slots[max(0, len(slots)-kept):]}
}

// machines has the servers of nodes examined, without their links. refused is set if the user may
// not have them examined.
func (w *topWatch) machines(
	ctx context.Context, nodes []admin.NodeInfo,
) (all map[string]admin.Examination, refused bool) {
	all = map[string]admin.Examination{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, n := range nodes {
		wait.Go(func() {
			x, err := w.cluster.Examine(ctx, n.Address, nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				all[n.Address] = x
			}
			refused = refused || refusedToUser(err)
		})
	}
	wait.Wait()
	return all, refused
}
