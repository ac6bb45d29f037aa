package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// reloadAfter is how long a request waits for the table stream to fill a hole before it asks
	// for a fresh table.
	reloadAfter = 100 * time.Millisecond
	// reloadInterval is the shortest time between two fresh tables on demand.
	reloadInterval = 500 * time.Millisecond
	// statusTimeout is how long a server may take to identify itself.
	statusTimeout = 2 * time.Second
	// tableTimeout is how long a server may take for the next part of a table that it has begun to
	// send.
	tableTimeout = 5 * time.Second
	// wholeTableTimeout is how long it may take for all of it.
	wholeTableTimeout = 2 * time.Minute
	// candidates is how many servers are asked at once.
	candidates = 8
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

// tableFollower keeps the table of a sender up to date, from the stream of one server at a time.
type tableFollower struct {
	sender *Sender
	// server is nil while no stream is followed.
	server        atomic.Pointer[followed]
	reach         reach
	subscriptions subscriptions
}

func (t *tableFollower) init(s *Sender) {
	t.sender = s
	t.reach.changed = make(chan struct{})
	t.subscriptions.init()
}

// leave ends the table stream if it comes from this address.
func (t *tableFollower) leave(address string) {
	if f := t.server.Load(); f != nil && f.address == address {
		f.cancel()
	}
}

// ReloadTable asks for a fresh table, unless one is on its way, or has come a moment ago. It does
// not wait.
func (s *Sender) ReloadTable() {
	f := s.following.server.Load()
	if f == nil {
		return
	}
	// INVARIANT: a table that is on its way is never given up for a fresh one: a large one may take
	// longer than callers take to ask again. One that does not come is ended by tableTimeout.
	if at := f.complete.Load(); at != nil && time.Since(*at) > reloadInterval {
		f.cancel()
	}
}

// AwaitTable waits for the first table. While no server can be reached at all it gives up after
// each has been tried, with an error that lists them. When ctx ends, the error is an *Error with
// what the servers said, and code NO_QUORUM if they wait for a core that has none.
func (s *Sender) AwaitTable(ctx context.Context) (*Table, error) {
	reach := &s.following.reach
	for {
		t := s.table.Load()
		if t.Cluster != 0 {
			return t, nil
		}
		reach.Lock()
		failed, changed := reach.failed, reach.changed
		reach.Unlock()
		if failed != nil {
			return nil, failed
		}
		select {
		case <-t.Changed():
		case <-changed:
		case <-ctx.Done():
			return nil, reach.ended(ctx.Err(), s.cfg.Endpoints)
		case <-s.life.Done():
			return nil, ErrClosed
		}
	}
}

// reach is what is known about servers while there is no table.
type reach struct {
	sync.Mutex
	// answers is what each server last said or how it failed, in words.
	answers map[string]string
	// trouble is what a server said about the core.
	trouble coreTrouble
	// failed is set when all servers were tried and none of them could be reached.
	failed  error
	changed chan struct{}
}

// UnreachableError lists the servers that were tried, and why each failed.
type UnreachableError struct {
	// Endpoints in the order given, and Reasons for each.
	Endpoints []string
	Reasons   []error
}

func (e *UnreachableError) Error() string {
	var b strings.Builder
	b.WriteString("no server could be reached:")
	for i, endpoint := range e.Endpoints {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " %s: %s", endpoint, wire.Reason(e.Reasons[i]))
	}
	return b.String()
}

// Advised says that the error says of every server what to do about it.
func (e *UnreachableError) Advised() bool {
	return !slices.ContainsFunc(e.Reasons, func(reason error) bool { return !wire.Advised(reason) })
}

// Unwrap gives the reasons.
func (e *UnreachableError) Unwrap() []error { return e.Reasons }

// ended makes the error of a wait that its context ended.
func (r *reach) ended(cause error, endpoints []string) *Error {
	r.Lock()
	defer r.Unlock()
	e := &Error{Cause: cause, Code: r.trouble.code(), Message: r.trouble.text}
	if r.trouble.text != "" {
		return e
	}
	if len(r.answers) == 0 {
		e.Message = "waiting for the answer of " + strings.Join(endpoints, ", ")
		return e
	}
	var parts []string
	for _, address := range slices.Sorted(maps.Keys(r.answers)) {
		parts = append(parts, address+": "+r.answers[address])
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

func (r *reach) note(answers map[string]string, trouble coreTrouble, failed error) {
	r.Lock()
	defer r.Unlock()
	r.answers, r.trouble = answers, trouble
	if r.failed == nil {
		r.failed = failed
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// run keeps the table up to date until Close: find a server that answers, follow its
// stream, move to another one when the stream ends.
func (t *tableFollower) run() {
	s := t.sender
	for failures := 0; ; {
		address, err := t.chooseServer()
		if err == nil {
			began := time.Now()
			s.metrics.tables.Inc()
			complete, err := t.followServer(address)
			if s.life.Ended() {
				return
			}
			s.log.Debug("the stream of the partition table ended", "server", address, "error", err)
			if complete {
				failures = 0
			}
			if complete && time.Since(began) > reloadInterval {
				continue
			}
		}
		if s.life.Pause(s.life.Context(), tableBackoff.Delay(failures, s.random())) != nil {
			return
		}
		failures++
	}
}

// servers are the addresses to ask: the endpoints as given, and some of the nodes that the table
// knows, in random order.
func (s *Sender) servers() []string {
	seen := make(map[string]bool)
	var all []string
	for _, e := range s.cfg.Endpoints {
		if !seen[e] {
			seen[e] = true
			all = append(all, e)
		}
	}
	t := s.table.Load()
	for _, id := range slices.Sorted(maps.Keys(t.nodes)) {
		if n := t.nodes[id]; n.Address != "" && !seen[n.Address] {
			seen[n.Address] = true
			all = append(all, n.Address)
		}
	}
	if t.Cluster == 0 {
		return all
	}
	for i := len(all) - 1; i > 0; i-- {
		j := int(s.cfg.Random() % uint64(i+1))
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// chooseServer asks several servers at once for their status, and returns the first that belongs to
// the cluster and is ready. If none is, it returns one that at least answers.
func (t *tableFollower) chooseServer() (string, error) {
	s := t.sender
	servers := s.servers()
	if s.table.Load().Cluster != 0 {
		servers = servers[:min(candidates, len(servers))]
	}
	ctx, cancel := context.WithTimeout(s.life.Context(), statusTimeout)
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
			st, err := s.status(ctx, address)
			answers <- answer{i, st, err}
		})
	}
	unready := ""
	reasons := make([]error, len(servers))
	said := make(map[string]string)
	var trouble coreTrouble
	for range servers {
		a := <-answers
		address := servers[a.index]
		switch {
		case a.err != nil:
			reasons[a.index] = a.err
			said[address] = wire.Reason(a.err)
		case a.status.Ready:
			return address, s.belongs(a.status.Cluster)
		default:
			unready = address
			said[address] = "not ready: " + a.status.WaitingFor
			if told := a.status.CoreTrouble; told != nil && (told.NoQuorum || !trouble.noQuorum) {
				trouble = coreTrouble{text: a.status.WaitingFor, noQuorum: told.NoQuorum}
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
func (s *Sender) status(ctx context.Context, address string) (*clusterpb.StatusResponse, error) {
	client, err := s.clusterClient(address)
	if err != nil {
		return nil, err
	}
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		if status.Code(err) == codes.Unimplemented {
			return nil, fmt.Errorf("it is a gRPC server, but not of Tidemark: %w", err)
		}
		if status.Code(err) == codes.DeadlineExceeded && s.life.Context().Err() == nil {
			return nil, fmt.Errorf("it did not answer within %s", statusTimeout)
		}
		return nil, err
	}
	if known := s.table.Load().Cluster; known != 0 && st.Cluster != 0 && st.Cluster != known {
		return nil, fmt.Errorf("%w: %016x, not %016x", ErrWrongCluster, st.Cluster, known)
	}
	return st, nil
}

func (s *Sender) clusterClient(address string) (clusterpb.ClusterClient, error) {
	cc, err := s.nodes.Dialer().Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewClusterClient(cc), nil
}

// followServer reads one table stream to its end. complete says that it sent a whole table.
func (t *tableFollower) followServer(address string) (complete bool, err error) {
	s := t.sender
	client, err := s.clusterClient(address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(s.life.Context())
	defer cancel()
	f := &followed{address: address, cancel: cancel}
	t.server.Store(f)
	defer t.server.Store(nil)
	// Without the token the server would withhold bounds, and send all of the table anew with it.
	patient, stop := context.WithTimeout(ctx, tokenPatience)
	s.identity.ForStream(patient)
	stop()
	// A stream may be silent for as long as nothing changes, but not before the table is complete.
	overdue := time.AfterFunc(tableTimeout, cancel)
	defer overdue.Stop()
	following, err := client.FollowTable(ctx)
	if err != nil {
		return false, err
	}
	stream, err := t.follow(following)
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
func (t *tableFollower) readTable(f *followed, stream tableStream,
	overdue *time.Timer) (complete bool, err error) {
	s := t.sender
	staged, begun := newContents(), time.Now()
	for {
		u, err := stream.Recv()
		if err != nil {
			return complete, err
		}
		if u.Reset_ && complete {
			begun = time.Now()
		}
		if u.Reset_ {
			staged, complete = newContents(), false
			f.complete.Store(nil)
		}
		if !complete && time.Since(begun) > wholeTableTimeout {
			return false, fmt.Errorf("it has sent parts of a table for %s, and not all",
				wholeTableTimeout)
		}
		if !complete {
			overdue.Reset(tableTimeout)
		}
		if err := s.belongs(u.Cluster); err != nil {
			return complete, err
		}
		s.Clock.LearnMaxOffset(u.MaxClockOffsetMicros)
		t.subscriptions.forget(u.RemovedKeyspaces)
		if staged == nil {
			s.merge(u)
			continue
		}
		if bad := staged.apply(u, &changes{}); bad != nil {
			s.log.Warn("a server sent a descriptor that makes no sense; it is ignored",
				"server", f.address, "error", bad)
		}
		for _, l := range u.Leaders {
			staged.leaders[l.Partition] = l
		}
		complete = complete || u.Complete
		if complete {
			overdue.Stop()
			if f.complete.Load() == nil {
				now := time.Now()
				f.complete.Store(&now)
			}
			if s.replace(staged) {
				staged = nil
			}
		}
	}
}

// belongs checks, or takes, the cluster's id.
func (s *Sender) belongs(cluster uint64) error {
	if cluster == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cluster == 0 {
		s.mu.cluster = cluster
	}
	if s.mu.cluster != cluster {
		return fmt.Errorf("%w: %016x, not %016x", ErrWrongCluster, cluster, s.mu.cluster)
	}
	return nil
}

// merge applies an update to the table in use.
func (s *Sender) merge(u *clusterpb.TableUpdate) {
	s.mu.Lock()
	var touched changes
	if bad := s.mu.contents.apply(u, &touched); bad != nil {
		s.log.Warn("a server sent a descriptor that makes no sense; it is ignored", "error", bad)
	}
	if touched.nodes || len(touched.keyspaces) > 0 {
		s.publishLocked(s.table.Load(), &touched)
	}
	s.mu.Unlock()
	s.learnLeaders(u.Leaders)
}

// replace makes a whole table the one in use. It refuses one that is behind what is known, or that
// names no cluster.
func (s *Sender) replace(staged *contents) bool {
	s.mu.Lock()
	if staged.revision < s.mu.contents.revision || s.mu.cluster == 0 {
		s.mu.Unlock()
		return false
	}
	everything := staged.everything()
	s.keepKnownLocked(staged, everything)
	leaders := slices.Collect(maps.Values(staged.leaders))
	staged.leaders = nil
	s.mu.contents = staged
	s.publishLocked(newTable(), everything)
	s.mu.Unlock()
	s.learnLeaders(leaders)
	return true
}

// keepKnownLocked adds to a whole table what is known of its keyspaces besides: answers of nodes
// may have brought later descriptors than the core has heard of.
func (s *Sender) keepKnownLocked(staged *contents, touched *changes) {
	keep := func(known *Partition) {
		if !staged.stays(known.Keyspace) {
			return
		}
		p := newPartition(known.Descriptor) // the known one is published, and does not change any more
		p.hint = known.hint
		if listed := staged.partitions[p.ID]; listed == nil ||
			newerEpoch(p.Descriptor, listed.Descriptor) {
			staged.partitions[p.ID] = p
		}
		k := touched.keyspace(p.Keyspace)
		k.in = append(k.in, p)
	}
	for _, known := range s.mu.contents.partitions {
		if listed := staged.partitions[known.ID]; listed != nil {
			listed.hint = known.hint
			if listed.tellsAllOf(known.Descriptor) {
				continue
			}
		}
		keep(known)
	}
	for _, l := range s.mu.contents.layouts {
		for known := range l.clipped {
			if s.mu.contents.partitions[known.ID] != known {
				keep(known)
			}
		}
	}
}
