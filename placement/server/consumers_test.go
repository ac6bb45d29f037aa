package server

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// consumed is a core with a node and a keyspace "k", whose GC window is an hour.
type consumed struct {
	*core
	t      *testing.T
	client *Client
}

// withConsumers runs a test with it.
func withConsumers(t *testing.T, f func(t *testing.T, c consumed)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		create(t, c, client, hash("k", 2, 1))
		f(t, consumed{c, t, client})
	})
}

func ago(d time.Duration) hlc.Timestamp { return hlc.FromTime(time.Now().Add(-d)) }

func at(name string, position hlc.Timestamp) *clusterpb.SetConsumerRequest {
	return &clusterpb.SetConsumerRequest{Keyspace: "k", Name: name,
		Position: rpc.ToClusterTimestamp(position)}
}

func (c consumed) set(r *clusterpb.SetConsumerRequest) *clusterpb.Consumer {
	c.t.Helper()
	response, err := c.client.SetConsumer(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.Consumer
}

// get is nil if there is no such consumer.
func (c consumed) get(name string) *clusterpb.Consumer {
	c.t.Helper()
	r, err := c.client.GetConsumer(c.t.Context(),
		&clusterpb.GetConsumerRequest{Keyspace: "k", Name: name})
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Consumer
}

func (c consumed) protected() hlc.Timestamp {
	c.t.Helper()
	return rpc.FromClusterTimestamp(keyspaceOf(c.t, c.client, "k").Keyspace.Protected)
}

func (c consumed) awaitProtected(want hlc.Timestamp) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s is protected", want), func() bool { return c.protected() == want })
}

// names lists the consumers of a keyspace, or of all.
func (c consumed) names(keyspace string) (names []string) {
	c.t.Helper()
	var after []byte
	for {
		r, err := c.client.ListConsumers(c.t.Context(),
			&clusterpb.ListConsumersRequest{Keyspace: keyspace, After: after})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, x := range r.Consumers {
			names = append(names, x.Keyspace+"/"+x.Name)
		}
		if after = r.Next; len(after) == 0 {
			return names
		}
	}
}

func TestConsumerMoves(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		if x := c.get("a"); x != nil {
			t.Fatalf("there is %v", x)
		}
		first := ago(time.Minute)
		x := c.set(at("a", first))
		if x.Keyspace != "k" || x.Name != "a" || x.LagMillis != 60_000 ||
			x.KeepMillis != 24*3600*1000 || x.TooOld {
			t.Errorf("made: %v", x)
		}
		time.Sleep(10 * time.Second) // virtual
		again := c.set(at("a", first))
		if again.UpdatedUnixMs != x.UpdatedUnixMs+10_000 || again.CreatedUnixMs != x.CreatedUnixMs {
			t.Errorf("set again: %v, before %v", again, x)
		}
		next := at("a", ago(time.Second))
		next.KeepMillis = 3600 * 1000
		c.set(next)
		if x = c.get("a"); x.LagMillis != 1000 || x.KeepMillis != 3600*1000 {
			t.Errorf("moved: %v", x)
		}
		_, err := c.client.SetConsumer(t.Context(), at("a", first))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "before") {
			t.Errorf("backwards: %v", err)
		}
		// Without a position it stays where it is.
		c.set(&clusterpb.SetConsumerRequest{Keyspace: "k", Name: "a"})
		if y := c.get("a"); y.Position.Wall != x.Position.Wall || y.KeepMillis != x.KeepMillis {
			t.Errorf("renewed: %v, before %v", y, x)
		}
		back := at("a", first)
		back.Reset_ = true
		c.set(back)
		if y := c.get("a"); rpc.FromClusterTimestamp(y.Position) != first {
			t.Errorf("reset: %v", y)
		}
		for _, existed := range []bool{true, false} {
			r, err := c.client.DeleteConsumer(t.Context(),
				&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: "a"})
			if err != nil || r.Existed != existed {
				t.Errorf("delete: %v, %v; want %v", r, err, existed)
			}
		}
		if x := c.get("a"); x != nil {
			t.Errorf("deleted, and there is %v", x)
		}
	})
}

// What a stranger may send is refused, and changes nothing.
func TestHostileConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		c.set(at("there", ago(time.Minute)))
		gone := hash("gone", 1, 1)
		create(t, c.core, c.client, gone)
		if _, err := c.client.DropKeyspace(t.Context(),
			&clusterpb.DropKeyspaceRequest{Name: "gone"}); err != nil {
			t.Fatal(err)
		}
		c.await("it is gone", func() bool { return keyspaceOf(t, c.client, "gone") == nil })
		in := func(keyspace string) *clusterpb.SetConsumerRequest {
			r := at("x", ago(0))
			r.Keyspace = keyspace
			return r
		}
		kept := func(d time.Duration) *clusterpb.SetConsumerRequest {
			r := at("x", ago(0))
			r.KeepMillis = uint64(d.Milliseconds())
			return r
		}
		before := c.members[0].store.Revision()
		for name, bad := range map[string]struct {
			request *clusterpb.SetConsumerRequest
			code    codes.Code
			want    string
		}{
			"no name":            {at("", ago(0)), codes.InvalidArgument, "needs a name"},
			"long name":          {at(strings.Repeat("n", 257), ago(0)), codes.InvalidArgument, "257"},
			"control characters": {at("a\nb", ago(0)), codes.InvalidArgument, "printable"},
			"no keyspace":        {in(""), codes.NotFound, "no keyspace"},
			"unknown keyspace":   {in("nowhere"), codes.NotFound, "no keyspace"},
			"dropped keyspace":   {in("gone"), codes.NotFound, "no keyspace"},
			"no position":        {at("x", hlc.Timestamp{}), codes.InvalidArgument, "needs a position"},
			"beyond the clocks": {at("x", ago(-c.members[0].server.config.MaxClockAhead-
				time.Millisecond)), codes.InvalidArgument, "in the future"},
			"beyond all clocks": {&clusterpb.SetConsumerRequest{Keyspace: "k", Name: "x",
				Position: &clusterpb.Timestamp{Wall: math.MaxUint64, Logical: 7}},
				codes.InvalidArgument, "in the future"},
			"future of one that is there": {at("there", ago(-time.Hour)), codes.InvalidArgument,
				"in the future"},
			"keep of nothing": {kept(time.Millisecond), codes.InvalidArgument, "1 ms"},
			"keep of years":   {kept(8 * 24 * time.Hour), codes.InvalidArgument, "168h"},
			"keep beyond all": {&clusterpb.SetConsumerRequest{Keyspace: "k", Name: "x",
				KeepMillis: math.MaxUint64}, codes.InvalidArgument, "168h"},
			"older than its keep": {at("x", ago(25*time.Hour)), codes.OutOfRange, "older than 24h"},
			"ancient":             {at("x", hlc.Timestamp{Wall: 1}), codes.OutOfRange, "older than 24h"},
		} {
			_, err := c.client.SetConsumer(t.Context(), bad.request)
			if status.Code(err) != bad.code || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%s: %v, want %s with %q", name, err, bad.code, bad.want)
			}
		}
		// As far as clocks may be apart a position may be ahead.
		if after := c.members[0].store.Revision(); after != before {
			t.Errorf("refused requests changed something: revision %d, was %d", after, before)
		}
		c.set(at("ahead", ago(-c.members[0].server.config.MaxClockAhead)))
		for _, keyspace := range []string{"", "gone"} {
			if _, err := c.client.GetConsumer(t.Context(), &clusterpb.GetConsumerRequest{
				Keyspace: keyspace, Name: "x"}); status.Code(err) != codes.NotFound {
				t.Errorf("get in %q: %v", keyspace, err)
			}
			if _, err := c.client.DeleteConsumer(t.Context(), &clusterpb.DeleteConsumerRequest{
				Keyspace: keyspace, Name: "x"}); status.Code(err) != codes.NotFound {
				t.Errorf("delete in %q: %v", keyspace, err)
			}
		}
		for _, after := range []string{"zzz", "\xff", "\x00", strings.Repeat("z", 266)} {
			if _, err := c.client.ListConsumers(t.Context(), &clusterpb.ListConsumersRequest{
				Keyspace: "k", After: []byte(after)}); err != nil {
				t.Errorf("list after %q: %v", after, err)
			}
		}
		if _, err := c.client.ListConsumers(t.Context(), &clusterpb.ListConsumersRequest{
			After: make([]byte, 1<<20)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("list after a megabyte: %v", err)
		}
	})
}

// A keyspace has a thousand consumers at most, also if two of them come at once; they are listed in
// pages.
func TestTooManyConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		for i := range MaxConsumers - 1 {
			c.set(at(fmt.Sprintf("c%04d", i), ago(0)))
		}
		// Two that see 999, and are written one after the other.
		c.hold("consumer/")
		failed := make(chan error, 2)
		for _, name := range []string{"left", "right"} {
			go func() {
				_, err := c.client.SetConsumer(t.Context(), at(name, ago(0)))
				failed <- err
			}()
		}
		c.await("both wait", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.held) == 2
		})
		c.release()
		one, two := <-failed, <-failed
		err := errors.Join(one, two)
		if (one == nil) == (two == nil) || !strings.Contains(err.Error(), "1000 consumers") {
			t.Fatalf("the thousandth and another one: %v, %v", one, two)
		}
		create(t, c.core, c.client, hash("l", 1, 1))
		other := at("z", ago(0))
		other.Keyspace = "l"
		c.set(other)
		if _, err := c.client.SetConsumer(t.Context(),
			at("one more", ago(0))); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
		c.set(at("c0007", ago(0)))
		if n := c.names("k"); len(n) != MaxConsumers || n[0] != "k/c0000" {
			t.Errorf("%d consumers are listed, from %v on", len(n), n[0])
		}
		if n := c.names(""); len(n) != MaxConsumers+1 || n[MaxConsumers] != "l/z" {
			t.Errorf("%d consumers are listed of all keyspaces", len(n))
		}
		if _, err := c.client.DeleteConsumer(t.Context(),
			&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: "c0000"}); err != nil {
			t.Fatal(err)
		}
		c.set(at("one more", ago(0)))
	})
}

// What is protected is the lowest position of all, and only while it is old; it follows the
// consumers, and ends with them.
func TestProtectionFollowsConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		begin := ago(20 * time.Minute)
		c.set(at("a", begin))
		c.set(at("b", ago(10*time.Minute)))
		time.Sleep(9 * time.Minute) // virtual
		if p := c.protected(); !p.IsZero() {
			t.Fatalf("%s is protected, which the window keeps", p)
		}
		c.awaitProtected(begin)
		// One that begins with an older position is protected at once.
		old := ago(3 * time.Hour)
		c.set(at("old", old))
		if p := c.protected(); p != old {
			t.Fatalf("%s is protected, want %s", p, old)
		}
		// One that begins later changes nothing.
		c.set(at("new", ago(time.Second)))
		if p := c.protected(); p != old {
			t.Fatalf("%s is protected, want %s", p, old)
		}
		// It follows, with pauses.
		writes := c.members[0].store.Revision()
		var last hlc.Timestamp
		for i := range 600 {
			last = ago(2*time.Hour - time.Duration(i)*time.Second)
			c.set(at("old", last))
			if p := c.protected(); last.Less(p) {
				t.Fatalf("%s is protected, and a consumer is at %s", p, last)
			}
			time.Sleep(100 * time.Millisecond) // virtual
		}
		if n := c.members[0].store.Revision() - writes; n > 700 {
			t.Errorf("%d writes for 600 moves of a consumer within a minute", n)
		}
		c.awaitProtected(last)
		back := at("b", ago(5*time.Hour))
		back.Reset_ = true
		c.set(back)
		if p := c.protected(); p != rpc.FromClusterTimestamp(back.Position) {
			t.Errorf("%s is protected after a reset", p)
		}
		for _, name := range []string{"b", "old"} {
			if _, err := c.client.DeleteConsumer(t.Context(),
				&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		c.awaitProtected(begin)
		c.set(at("a", ago(0)))
		c.awaitProtected(hlc.Timestamp{})
	})
}

// In a keyspace whose window is short consumers are protected from the beginning.
func TestProtectionInShortWindows(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		r := hash("short", 1, 1)
		r.GcWindowSeconds = 2
		create(t, c.core, c.client, r)
		set := at("a", ago(0))
		set.Keyspace = "short"
		c.set(set)
		p := keyspaceOf(t, c.client, "short").Keyspace.Protected
		if rpc.FromClusterTimestamp(p) != rpc.FromClusterTimestamp(set.Position) {
			t.Errorf("%v is protected", p)
		}
	})
}

// A consumer that is beyond its keep is protected no more, and does not begin anew without being
// told.
func TestConsumersBeyondTheirKeep(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		short := at("short", ago(40*time.Minute))
		short.KeepMillis = 3600 * 1000
		c.set(short)
		long := ago(35 * time.Minute)
		c.set(at("long", long))
		c.awaitProtected(rpc.FromClusterTimestamp(short.Position))
		c.await("the lag is shown", func() bool { return c.shows(0)["consumer_lag_seconds k"] > 0 })
		if used := c.shows(0)["consumer_keep_used_ratio k"]; used < 0.66 || used > 0.7 {
			t.Errorf("%f of a keep is used", used)
		}
		time.Sleep(19 * time.Minute) // virtual
		if x := c.get("short"); x.GetTooOld() {
			t.Fatalf("within its keep it is %v", x)
		}
		c.await("it is too old", func() bool { return c.get("short").GetTooOld() })
		c.awaitProtected(long)
		c.await("it is counted", func() bool {
			shown := c.shows(0)
			return shown["consumers_dropped_total"] == 1 && shown["consumers too_old"] == 1 &&
				shown["consumers kept"] == 1
		})
		for _, r := range []*clusterpb.SetConsumerRequest{at("short", ago(0)),
			{Keyspace: "k", Name: "short"}} {
			if _, err := c.client.SetConsumer(t.Context(), r); status.Code(err) != codes.OutOfRange ||
				!strings.Contains(err.Error(), "reset") {
				t.Errorf("it goes on: %v", err)
			}
		}
		events, err := c.client.ListEvents(t.Context(), &clusterpb.ListEventsRequest{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range events.Events {
			found = found || e.Kind == "consumer" && e.Keyspace == "k" &&
				strings.Contains(e.Outcome, "short")
		}
		if !found {
			t.Errorf("no event tells of it: %v", events.Events)
		}
		reset := at("short", ago(time.Minute))
		reset.Reset_ = true
		if x := c.set(reset); x.TooOld || x.LagMillis != 60_000 {
			t.Errorf("after a reset it is %v", x)
		}
		// One that moves before the leader looks again is not too old.
		c.set(at("long", ago(0)))
		c.awaitProtected(hlc.Timestamp{})
	})
}

// A restart and another leader find the consumers, and go on protecting them.
func TestConsumersOutliveLeaders(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		position := ago(25 * time.Minute)
		c.set(at("a", position))
		c.elect(c.members[1])
		if x := c.get("a"); rpc.FromClusterTimestamp(x.GetPosition()) != position {
			t.Fatalf("the next leader knows %v", x)
		}
		time.Sleep(4 * time.Minute) // virtual
		c.awaitProtected(position)
		c.await("only the leader shows consumers", func() bool {
			return c.shows(0)["consumers kept"] == 0 && c.shows(1)["consumers kept"] == 1
		})
		if _, ok := c.shows(0)["consumer_lag_seconds k"]; ok {
			t.Error("a member that does not lead shows a lag")
		}
		c.restart()
		c.elect(c.members[2])
		if x := c.get("a"); rpc.FromClusterTimestamp(x.GetPosition()) != position {
			t.Fatalf("after a restart: %v", x)
		}
		if p := c.protected(); p != position {
			t.Fatalf("after a restart %s is protected", p)
		}
		moved := ago(32 * time.Minute)
		reset := at("a", moved)
		reset.Reset_ = true
		c.set(reset)
		next := moved.Add(time.Second)
		c.set(at("a", next))
		c.awaitProtected(next)
	})
}

// The leader that falls at any step of setting a consumer leaves it as it was or as it should be.
func TestConsumerIsSetAcrossLeaders(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied: ", applied), func(t *testing.T) {
			withConsumers(t, func(t *testing.T, c consumed) {
				old := ago(2 * time.Hour)
				for i := range 3 {
					c.mu.Lock()
					c.crashAt, c.applied = c.proposed+i+1, applied
					c.mu.Unlock()
					name := fmt.Sprint("c", i)
					position := old.Add(time.Duration(-i) * time.Second)
					c.set(at(name, position))
					if x := c.get(name); rpc.FromClusterTimestamp(x.GetPosition()) != position {
						t.Fatalf("%s is %v", name, x)
					}
					if p := c.protected(); p != position {
						t.Fatalf("%s is protected, want %s", p, position)
					}
				}
			})
		})
	}
}

// A keyspace that is dropped takes its consumers with it; one of the same name begins without any.
func TestDroppedKeyspaceHasNoConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		for i := range 5 {
			c.set(at(fmt.Sprint(i), ago(2*time.Hour)))
		}
		before := keyspaceOf(t, c.client, "k").Keyspace.Id
		// A consumer that is on its way while the keyspace is dropped.
		c.hold("consumer/")
		failed := make(chan error, 1)
		go func() {
			_, err := c.client.SetConsumer(t.Context(), at("late", ago(0)))
			failed <- err
		}()
		c.await("it is on its way", c.holding)
		held := c.takeHeld()
		if _, err := c.client.DropKeyspace(t.Context(),
			&clusterpb.DropKeyspaceRequest{Name: "k"}); err != nil {
			t.Fatal(err)
		}
		if n := c.names(""); len(n) != 0 {
			t.Errorf("%v are listed", n)
		}
		c.await("it is gone", func() bool { return keyspaceOf(t, c.client, "k") == nil })
		for _, propose := range held {
			propose()
		}
		if err := <-failed; status.Code(err) != codes.NotFound {
			t.Errorf("the late one: %v", err)
		}
		start, end := store.PrefixRange([]byte(consumerPrefix))
		left, err := c.members[0].store.Stale().Range(&storepb.Range{Key: start, RangeEnd: end})
		if err != nil || len(left.Kvs) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
		create(t, c.core, c.client, hash("k", 2, 1))
		if id := keyspaceOf(t, c.client, "k").Keyspace.Id; id == before || len(c.names("k")) != 0 ||
			!c.protected().IsZero() {
			t.Errorf("the new keyspace %d has the consumers %v", id, c.names("k"))
		}
	})
}

// shows are the metrics of consumers that a member shows, by name and label.
func (c consumed) shows(member int) map[string]float64 {
	c.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.members[member].server.metrics.collectors...)
	families, err := registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "tidemark_core_")
		for _, m := range f.Metric {
			if !ok {
				continue
			}
			series := name
			for _, l := range m.Label {
				series += " " + l.GetValue()
			}
			shown[series] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return shown
}

// takeHeld ends hold, and gives what waits to the caller.
func (c *core) takeHeld() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	c.held, c.holds = nil, nil
	return held
}

func TestConsumerNames(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "search index, eu": true, "größe": true, "": false,
		strings.Repeat("x", 256): true, strings.Repeat("x", 257): false, "\x00": false, "a\tb": false,
		"\xff": false, "a/b": true, "\u202e": false} {
		if err := keys.ValidateConsumerName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
