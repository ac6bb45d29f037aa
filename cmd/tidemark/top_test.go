package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/top"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// Without a terminal, top prints one picture of what the nodes do.
func TestTop(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "topped", "--partitions", "hash:1")
	b.ok("put", "topped", "key", "value")
	text := b.ok("top")
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(strings.TrimSpace(lines[0]), "NODE") ||
		!strings.HasPrefix(strings.TrimSpace(lines[3]), "3 ") {
		t.Errorf("top prints\n%s", text)
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("without a terminal, top prints control characters: %q", text)
	}
	b.fails(exit.Usage, "--every is at least", "top", "--every", "1ms")
}

// On a terminal it draws until q is pressed, and leaves the terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	b := cluster(t)
	client, err := kv.Open(t.Context(), strings.Split(b.environment[endpointsEnv], ","))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	pressed, press := io.Pipe()
	drawn := make(chan string, 1)
	restored := 0
	a := &app{streams: streams{out: writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("nodes alive")) {
			select {
			case drawn <- string(p):
			default:
			}
		}
		return len(p), nil
	}), keys: &screenKeys{
		ReadWriter: struct {
			io.Reader
			io.Writer
		}{pressed, io.Discard},
		raw:  func() (func(), error) { return func() { restored++ }, nil },
		size: func() (int, int) { return 40, 6 },
	}}}
	watch := &topWatch{cluster: admin.New(client), known: map[uint64]admin.LoadHistory{}}
	ended := make(chan error, 1)
	go func() { ended <- a.top(t.Context(), watch, leastTopPause) }()
	text := <-drawn
	if lines := strings.Split(text, "\r\n"); len(lines) != 6 || !strings.HasPrefix(text, "\x1b[H") {
		t.Errorf("%d lines are drawn on a terminal of 6: %q", len(lines), text)
	}
	if _, err := press.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || restored != 1 {
		t.Errorf("it ends with %v, and restores the terminal %d times", err, restored)
	}
}

// counted is a cluster of two nodes whose user has no right, and counts what it is asked.
type counted struct {
	nodes          []admin.NodeInfo
	examined, slow atomic.Int64
	refusal        error
}

func (c *counted) Nodes(context.Context) ([]admin.NodeInfo, error) {
	return slices.Clone(c.nodes), nil
}
func (*counted) Partitions(context.Context, string) ([]admin.PartitionInfo, error) { return nil, nil }
func (*counted) CoreHealth(context.Context) (admin.Core, error) {
	return admin.Core{}, nil
}
func (*counted) LoadHistories(_ context.Context, nodes []admin.NodeInfo,
	_ func(uint64) admin.LoadHistorySince) (all []admin.LoadHistory) {
	for _, n := range nodes {
		all = append(all, admin.LoadHistory{Node: n.ID})
	}
	return all
}
func (c *counted) Examine(context.Context, string, []string) (admin.Examination, error) {
	c.examined.Add(1)
	return admin.Examination{}, c.refusal
}
func (c *counted) SlowRequests(context.Context, admin.SlowQuery) (admin.SlowRequests, error) {
	c.slow.Add(1)
	return admin.SlowRequests{}, c.refusal
}

// What is refused to the user is asked for once, and what fails is asked for again. Nodes that are
// gone are forgotten.
func TestTopAfterRefusals(t *testing.T) {
	for refusal, want := range map[error]int64{
		kv.NewError("examine", "", "", kv.ErrPermissionDenied): 1,
		kv.NewError("examine", "", "", kv.ErrUnauthenticated):  1,
		kv.NewError("examine", "", "", kv.ErrUnavailable):      3,
		context.DeadlineExceeded:                               3, nil: 3,
	} {
		c := &counted{refusal: refusal, nodes: []admin.NodeInfo{{ID: 1, Address: "a:1", Alive: true},
			{ID: 2, Address: "b:1", Alive: true}}}
		w := &topWatch{cluster: c, known: map[uint64]admin.LoadHistory{}}
		for range 3 {
			if _, err := w.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if examined, slow := c.examined.Load(), c.slow.Load(); examined != 2*want || slow != want {
			t.Errorf("after %v, %d examinations and %d questions for slow requests, want %d and %d",
				refusal, examined, slow, 2*want, want)
		}
		c.nodes = c.nodes[:1]
		if _, err := w.look(t.Context()); err != nil || len(w.known) != 1 {
			t.Errorf("%d nodes are known after one is gone, %v", len(w.known), err)
		}
	}
}

// The one picture has the slow requests, too, except for programs.
func TestTopPrintsSlowRequests(t *testing.T) {
	view := &top.View{At: time.Now(), Nodes: []admin.NodeInfo{{ID: 1, Alive: true}},
		Slow: []admin.SlowRequest{{Node: 1, Began: time.Now(), Took: time.Second, Kind: "put",
			Keyspace: "things"}}}
	for format, want := range map[output.Format]bool{output.Table: true, output.JSON: false} {
		var out bytes.Buffer
		a := &app{streams: streams{out: &out}, format: format}
		if err := a.printView(view); err != nil || strings.Contains(out.String(), "things") != want {
			t.Errorf("%v: %v, printed\n%s", format, err, out.String())
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// What comes again replaces what was known, and the rest goes on.
func TestJoined(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	known := admin.LoadHistory{Node: 1,
		Points: []admin.LoadPoint{{Begin: at(10), Reads: 1}, {Begin: at(20), Reads: 2}},
		Slots:  []admin.LoadSlot{{Begin: at(10), LeftOut: 1}}}
	next := admin.LoadHistory{Node: 1,
		Points: []admin.LoadPoint{{Begin: at(20), Reads: 5}, {Begin: at(30), Reads: 6}},
		Slots:  []admin.LoadSlot{{Begin: at(10), LeftOut: 7}, {Begin: at(40)}}}
	got := joined(known, next)
	if len(got.Points) != 3 || got.Points[1].Reads != 5 || got.Points[2].Reads != 6 ||
		len(got.Slots) != 2 || got.Slots[0].LeftOut != 7 {
		t.Errorf("%+v", got)
	}
	for second := range 100 {
		got = joined(got, admin.LoadHistory{Node: 1,
			Points: []admin.LoadPoint{{Begin: at(100 + second)}}})
	}
	if len(got.Points) != 12 || !got.Points[11].Begin.Equal(at(199)) {
		t.Errorf("%d points are kept", len(got.Points))
	}
}
