package server

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// consumed is a core with a node and a keyspace "k", whose GC window is an hour.
type consumed struct {
	*core
	t      *testing.T
	client *coreclient.Client
}

// withConsumers runs a test with it.
func withConsumers(t *testing.T, f func(t *testing.T, c consumed)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		create(t, c, client, hash("k", 2, 1))
		f(t, consumed{c, t, client})
	})
}

func ago(d time.Duration) hlc.Timestamp { return hlc.FromTime(time.Now().Add(-d)) }

func at(name string, position hlc.Timestamp) *clusterpb.SetConsumerRequest {
	return &clusterpb.SetConsumerRequest{Keyspace: "k", Name: name,
		Position: wire.ToClusterTimestamp(position)}
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
	return wire.FromClusterTimestamp(keyspaceOf(c.t, c.client, "k").Keyspace.Protected)
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
		if y := c.get("a"); wire.FromClusterTimestamp(y.Position) != first {
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
		for i := range consumer.MaxOfKeyspace - 1 {
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
		if n := c.names("k"); len(n) != consumer.MaxOfKeyspace || n[0] != "k/c0000" {
			t.Errorf("%d consumers are listed, from %v on", len(n), n[0])
		}
		if n := c.names(""); len(n) != consumer.MaxOfKeyspace+1 || n[consumer.MaxOfKeyspace] != "l/z" {
			t.Errorf("%d consumers are listed of all keyspaces", len(n))
		}
		if _, err := c.client.DeleteConsumer(t.Context(),
			&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: "c0000"}); err != nil {
			t.Fatal(err)
		}
		c.set(at("one more", ago(0)))
	})
}

// A cluster has so many consumers at most, in all keyspaces together.
func TestTooManyConsumersOfACluster(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		c.reconfigure(func(config *Config) { config.MaxConsumers = 3 })
		create(t, c.core, c.client, hash("l", 1, 1))
		for i := range 3 {
			r := at(fmt.Sprint(i), ago(0))
			r.Keyspace = []string{"k", "l"}[i%2]
			c.set(r)
		}
		if _, err := c.client.SetConsumer(t.Context(),
			at("one more", ago(0))); status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "the cluster has 3 consumers") {
			t.Errorf("one more: %v", err)
		}
		c.set(at("0", ago(0)))
		if _, err := c.client.DeleteConsumer(t.Context(),
			&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: "0"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // virtual
		c.set(at("one more", ago(0)))
	})
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
			// Past the client, which would ask again in the meantime.
			_, err := c.members[0].server.Consumers().Set(t.Context(), at("late", ago(0)))
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
		start, end := store.PrefixRange([]byte(meta.ConsumerPrefix))
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

// takeHeld ends hold, and gives what waits to the caller.
func (c *core) takeHeld() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	c.held, c.holds = nil, nil
	return held
}

func TestConsumerNames(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "search index, eu": true, "größe": true,
		"": false, strings.Repeat("x", 256): true, strings.Repeat("x", 257): false,
		"\x00": false, "a\tb": false, "\xff": false, "a/b": true, "\u202e": false} {
		if err := keys.ValidateConsumerName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A consumer is of the keys that it was made or reset with; they stay when it moves.
func TestConsumerSpan(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		of := func(start, end string) *clusterpb.SetConsumerRequest {
			r := at("a", ago(0))
			r.Span = &clusterpb.ConsumerSpan{Start: []byte(start), End: []byte(end)}
			return r
		}
		is := func(start, end string) {
			t.Helper()
			if x := c.get("a"); string(x.Span.GetStart()) != start || string(x.Span.GetEnd()) != end {
				t.Errorf("it is of %v, want %q to %q", x.Span, start, end)
			}
		}
		refused := func(code codes.Code, words string, r *clusterpb.SetConsumerRequest) {
			t.Helper()
			if _, err := c.client.SetConsumer(t.Context(), r); status.Code(err) != code ||
				!strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %s with %q", err, code, words)
			}
		}
		long := strings.Repeat("x", keys.MaxConsumerBound+1)
		refused(codes.InvalidArgument, "1024 bytes", of(long, ""))
		refused(codes.InvalidArgument, "1024 bytes", of("", long))
		refused(codes.InvalidArgument, "there are none", of("b", "a"))
		c.set(of("a", "b"))
		is("a", "b")
		c.set(at("a", ago(0)))
		is("a", "b")
		refused(codes.FailedPrecondition, `the keys from "a" to "b", and not of all keys`, of("", ""))
		refused(codes.FailedPrecondition, "and not of the keys from", of("a", ""))
		is("a", "b")
		reset := at("a", ago(0))
		reset.Reset_ = true
		c.set(reset)
		is("a", "b")
		other := of("c", "")
		other.Reset_, other.KeepMillis = true, 60_000
		c.set(other)
		is("c", "")
		c.set(of("c", ""))
		// One that becomes too old is of the same keys.
		time.Sleep(2 * time.Minute) // virtual
		c.await("it is too old", func() bool { return c.get("a").TooOld })
		is("c", "")
	})
}

// Of two that make a consumer at once, where only a new one is to be made, one does, and the other
// one hears of it.
func TestOnlyNewConsumer(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		c.hold("consumer/")
		answers := make(chan *clusterpb.SetConsumerResponse, 2)
		for i := range 2 {
			go func() {
				r := at("a", ago(time.Duration(i+1)*time.Minute))
				r.OnlyNew, r.KeepMillis = true, uint64(i+1)*3600_000
				answer, err := c.client.SetConsumer(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				answers <- answer
			}()
		}
		c.await("both wait", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.held) == 2
		})
		c.release()
		one, two := <-answers, <-answers
		if one.GetExisted() == two.GetExisted() ||
			one.Consumer.Position.Wall != two.Consumer.Position.Wall ||
			one.Consumer.KeepMillis != two.Consumer.KeepMillis || one.Consumer.Keyspace != "k" {
			t.Errorf("%v, and %v", one, two)
		}
		if x := c.get("a"); x.Position.Wall != one.Consumer.Position.Wall {
			t.Errorf("it is %v", x)
		}
	})
}
