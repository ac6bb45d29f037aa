package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// ReloadAfter is how long a request waits for the table stream to fill a hole before it asks
	// for a fresh table.
	ReloadAfter = 100 * time.Millisecond
	// reloadInterval is the shortest time between two fresh tables on demand.
	reloadInterval = 500 * time.Millisecond
	// StatusTimeout is how long a server may take to identify itself.
	StatusTimeout = 2 * time.Second
	// TableTimeout is how long a server may take for the next part of a table that it has begun to
	// send.
	TableTimeout = 5 * time.Second
	// wholeTableTimeout is how long it may take for all of it.
	wholeTableTimeout = 2 * time.Minute
	// Candidates is how many servers are asked at once.
	Candidates = 8
	// tokenPatience is how long a new stream waits for a token, which it can be shown later.
	tokenPatience = time.Second
)

// followed is the table stream in use.
type followed struct {
	address string
	cancel  context.CancelFunc
	// complete is when it had sent a whole table; nil: it has not.
	complete atomic.Pointer[time.Time]
}

// Config is what a Follower is made of. All fields are required.
type Config struct {
	// Endpoints are addresses of any servers of the cluster.
	Endpoints []string
	// Known takes the table in.
	Known    *table.Known
	Dialer   *client.Dialer
	Identity *identity.Identity
	Clock    *clock.Clock
	// Random gives random numbers, for jitter and the order in which servers are asked.
	Random func() uint64
	Logger *slog.Logger
	Life   *lifetime.Lifetime
	// Streams counts the streams of the table that were opened.
	Streams *metric.Counter
}

// Follower keeps the table of a sender up to date, from the stream of one server at a time.
type Follower struct {
	config Config
	// server is nil while no stream is followed.
	server        atomic.Pointer[followed]
	reach         reach
	subscriptions subscriptions
}

// New makes a Follower, which Run sets to work.
func New(config Config) *Follower {
	t := &Follower{config: config}
	t.reach.changed = make(chan struct{})
	t.subscriptions.init()
	return t
}

// Leave ends the table stream if it comes from this address.
func (t *Follower) Leave(address string) {
	if f := t.server.Load(); f != nil && f.address == address {
		f.cancel()
	}
}

// Followed is the address of the server whose stream is followed; "" while no stream is.
func (t *Follower) Followed() string {
	if f := t.server.Load(); f != nil {
		return f.address
	}
	return ""
}

// Reload asks for a fresh table, unless one is on its way, or has come a moment ago. It does not
// wait.
func (t *Follower) Reload() {
	f := t.server.Load()
	if f == nil {
		return
	}
	// INVARIANT: a table that is on its way is never given up for a fresh one: a large one may take
	// longer than callers take to ask again. One that does not come is ended by TableTimeout.
	if at := f.complete.Load(); at != nil && time.Since(*at) > reloadInterval {
		f.cancel()
	}
}

// Await waits for the first table. While no server can be reached at all it gives up after each has
// been tried, with an *UnreachableError. When ctx ends, the error is a *NoTableError with what the
// servers said, and code NO_QUORUM if they wait for a core that has none.
func (t *Follower) Await(ctx context.Context) (*table.Table, error) {
	reach := &t.reach
	for {
		known := t.config.Known.Table()
		if known.Cluster != 0 {
			return known, nil
		}
		reach.Lock()
		failed, changed := reach.failed, reach.changed
		reach.Unlock()
		if failed != nil {
			return nil, failed
		}
		select {
		case <-known.Changed():
		case <-changed:
		case <-ctx.Done():
			return nil, reach.ended(ctx.Err(), t.config.Endpoints)
		case <-t.config.Life.Done():
			return nil, lifetime.ErrClosed
		}
	}
}

// Subscribe has the table follow the partitions of a keyspace, if it does not yet. It does not
// wait: the keyspace is Complete in a later table.
func (t *Follower) Subscribe(k *table.Keyspace) {
	if !k.Followed() {
		t.subscriptions.add(k.ID)
	}
}

// HolePatience is how long a request waits for the table stream to fill a hole in a keyspace before
// it asks for a fresh table. Partitions that were not asked for before are no hole.
func HolePatience(k *table.Keyspace) time.Duration {
	if k.Followed() {
		return ReloadAfter
	}
	return TableTimeout
}

// tableBackoff is the wait before the table stream is opened anew.
var tableBackoff = backoff.Backoff{Name: "table", Base: 50 * time.Millisecond, Cap: time.Second,
	Jitter: 0.5, AtOnce: 1}

// random is uniform in [0, 1).
func (t *Follower) random() float64 { return float64(t.config.Random()>>11) / (1 << 53) }

// Run keeps the table up to date until the lifetime ends: find a server that answers, follow its
// stream, move to another one when the stream ends.
func (t *Follower) Run() {
	for failures := 0; ; {
		address, err := t.chooseServer()
		if err == nil {
			began := time.Now()
			t.config.Streams.Inc()
			complete, err := t.followServer(address)
			if t.config.Life.Ended() {
				return
			}
			t.config.Logger.Debug("the stream of the partition table ended",
				"server", address, "error", err)
			if complete {
				failures = 0
			}
			if complete && time.Since(began) > reloadInterval {
				continue
			}
		}
		wait := tableBackoff.Delay(failures, t.random())
		if t.config.Life.Pause(t.config.Life.Context(), wait) != nil {
			return
		}
		failures++
	}
}

// Servers are the addresses to ask: the endpoints as given, and some of the nodes that the table
// knows, in random order.
func (t *Follower) Servers() []string {
	seen := make(map[string]bool)
	var all []string
	for _, e := range t.config.Endpoints {
		if !seen[e] {
			seen[e] = true
			all = append(all, e)
		}
	}
	known := t.config.Known.Table()
	nodes := known.Nodes()
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[id]; n.Address != "" && !seen[n.Address] {
			seen[n.Address] = true
			all = append(all, n.Address)
		}
	}
	if known.Cluster == 0 {
		return all
	}
	for i := len(all) - 1; i > 0; i-- {
		j := int(t.config.Random() % uint64(i+1))
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// chooseServer asks several servers at once for their status, and returns the first that belongs to
// the cluster and is ready. If none is, it returns one that at least answers.
func (t *Follower) chooseServer() (string, error) {
	servers := t.Servers()
	if t.config.Known.Table().Cluster != 0 {
		servers = servers[:min(Candidates, len(servers))]
	}
	ctx, cancel := context.WithTimeout(t.config.Life.Context(), StatusTimeout)
	defer cancel()
	type answer struct {
		index  int
		status *clusterpb.StatusResponse
		err    error
	}
	answers := make(chan answer, len(servers))
	var asking sync.WaitGroup
	defer asking.Wait() // runs after cancel
	defer cancel()
	for i, address := range servers {
		asking.Go(func() {
			st, err := t.status(ctx, address)
			answers <- answer{i, st, err}
		})
	}
	unready := ""
	reasons := make([]error, len(servers))
	said := make(map[string]string)
	var trouble CoreTrouble
	for range servers {
		a := <-answers
		address := servers[a.index]
		switch {
		case a.err != nil:
			reasons[a.index] = a.err
			said[address] = wire.Reason(a.err)
		case a.status.Ready:
			return address, t.config.Known.Belongs(a.status.Cluster)
		default:
			unready = address
			said[address] = "not ready: " + a.status.WaitingFor
			if told := a.status.CoreTrouble; told != nil && (told.NoQuorum || !trouble.NoQuorum) {
				trouble = CoreTrouble{Text: a.status.WaitingFor, NoQuorum: told.NoQuorum}
			}
		}
	}
	if unready != "" {
		t.reach.note(said, trouble, nil)
		return unready, nil
	}
	err := &UnreachableError{Endpoints: servers, Reasons: reasons}
	t.reach.note(said, trouble, err)
	return "", err
}

// status asks one server, and refuses one of another cluster.
func (t *Follower) status(ctx context.Context, address string) (*clusterpb.StatusResponse, error) {
	client, err := t.Client(address)
	if err != nil {
		return nil, err
	}
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		if status.Code(err) == codes.Unimplemented {
			return nil, fmt.Errorf("it is a gRPC server, but not of Tidemark: %w", err)
		}
		if status.Code(err) == codes.DeadlineExceeded && t.config.Life.Context().Err() == nil {
			return nil, fmt.Errorf("it did not answer within %s", StatusTimeout)
		}
		return nil, err
	}
	if known := t.config.Known.Table().Cluster; known != 0 && st.Cluster != 0 && st.Cluster != known {
		return nil, fmt.Errorf("%w: %016x, not %016x", table.ErrWrongCluster, st.Cluster, known)
	}
	return st, nil
}

// Client makes calls of the service Cluster at a server.
func (t *Follower) Client(address string) (clusterpb.ClusterClient, error) {
	cc, err := t.config.Dialer.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewClusterClient(cc), nil
}

// followServer reads one table stream to its end. complete says that it sent a whole table.
func (t *Follower) followServer(address string) (complete bool, err error) {
	client, err := t.Client(address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(t.config.Life.Context())
	defer cancel()
	f := &followed{address: address, cancel: cancel}
	t.server.Store(f)
	defer t.server.Store(nil)
	// Without the token the server would withhold bounds, and send all of the table anew with it.
	patient, stop := context.WithTimeout(ctx, tokenPatience)
	t.config.Identity.ForStream(patient)
	stop()
	// A stream may be silent for as long as nothing changes, but not before the table is complete.
	overdue := time.AfterFunc(TableTimeout, cancel)
	defer overdue.Stop()
	following, err := client.FollowTable(ctx)
	if err != nil {
		return false, err
	}
	stream, err := t.subscriptions.follow(following, t.config.Identity)
	if err == nil {
		defer stream.asking.Wait() // runs after the next
		defer cancel()
		complete, err = t.readTable(f, stream, overdue)
	}
	if !errors.Is(err, errNoFollow) {
		return complete, err
	}
	whole, err := client.WatchTable(ctx, &clusterpb.WatchTableRequest{})
	if err != nil {
		return false, err
	}
	return t.readTable(f, wholeStream{whole}, overdue)
}

// readTable reads a stream to its end.
func (t *Follower) readTable(f *followed, stream tableStream,
	overdue *time.Timer) (complete bool, err error) {
	staged, begun := table.NewStaged(), time.Now()
	for {
		u, err := stream.Recv()
		if err != nil {
			return complete, err
		}
		if u.Reset_ && complete {
			begun = time.Now()
		}
		if u.Reset_ {
			staged, complete = table.NewStaged(), false
			f.complete.Store(nil)
		}
		if !complete && time.Since(begun) > wholeTableTimeout {
			return false, fmt.Errorf("it has sent parts of a table for %s, and not all",
				wholeTableTimeout)
		}
		if !complete {
			overdue.Reset(TableTimeout)
		}
		if err := t.config.Known.Belongs(u.Cluster); err != nil {
			return complete, err
		}
		t.config.Clock.LearnMaxOffset(u.MaxClockOffsetMicros)
		t.subscriptions.forget(u.RemovedKeyspaces)
		if staged == nil {
			t.config.Known.Merge(u)
			continue
		}
		if bad := staged.Apply(u); bad != nil {
			t.config.Logger.Warn("a server sent a descriptor that makes no sense; it is ignored",
				"server", f.address, "error", bad)
		}
		complete = complete || u.Complete
		if complete {
			overdue.Stop()
			if f.complete.Load() == nil {
				now := time.Now()
				f.complete.Store(&now)
			}
			if t.config.Known.Replace(staged) {
				staged = nil
			}
		}
	}
}
