package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is what helpers need of a *testing.T or *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

var errNoQuorum = errors.New("no quorum")

// core is a Raft group as far as a state machine can tell: one log, of which each member has
// applied a part.
type core struct {
	t fataler

	mu     sync.Mutex
	term   uint64
	leader *member // nil: no member leads
	// the leader has lost its quorum: proposals wait, leases and read indexes are refused
	cut bool
	// the leader applies what is committed only when it catches up
	lags    bool
	hold    func(*storepb.Command) <-chan struct{}
	log     []group.Entry
	members []*member
	// changes are the configurations that were proposed.
	changes []string
}

// member is a store on its own database. It implements Group.
type member struct {
	core  *core
	id    keys.ReplicaID
	fs    *vfs.MemFS
	state *engine.State
	store *Store
	down  bool
}

func newCore(t fataler, members int, change func(*Config)) *core {
	c := &core{t: t, term: 1}
	for i := range members {
		m := &member{core: c, id: keys.ReplicaID(i + 1), fs: vfs.NewCrashableMem()}
		m.open(change)
		c.members = append(c.members, m)
	}
	return c
}

func (m *member) open(change func(*Config)) {
	m.core.t.Helper()
	var err error
	m.state, err = engine.OpenState(engine.Options{FS: m.fs, Dir: "state", CacheBytes: 1 << 20,
		MemTableBytes: 1 << 20})
	if err != nil {
		m.core.t.Fatal(err)
	}
	config := Config{State: m.state, Group: m, Random: rand.Reader}
	if m.id%2 == 1 {
		// What the members remember differs, and what they do must not.
		config.newest = &newest.Limits{GenerationBytes: 1000, VersionBytes: 500, MinKeys: 4,
			MaxKeys: 64, Misses: 2}
		config.keyCounts = keycount.DefaultLimits()
		config.keyCounts.Vacant, config.keyCounts.VacantAfter = 3, 1
	}
	if testing.Verbose() {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&config)
	}
	if m.store, err = New(config); err != nil {
		m.core.t.Fatal(err)
	}
	m.down = false
}

func (m *member) close() {
	if m.down {
		return
	}
	m.down = true
	m.store.Close()
	if err := m.state.Close(); err != nil {
		m.core.t.Fatal(err)
	}
}

func (c *core) close() {
	c.elect(nil)
	for _, m := range c.members {
		m.close()
	}
}

// elect makes a member the leader of a new term; nil: none.
func (c *core) elect(leader *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = leader
	c.term++
	var id keys.ReplicaID
	if leader != nil {
		id = leader.id
	}
	for _, m := range c.members {
		if !m.down {
			m.store.LeadershipChanged(group.Leadership{Term: c.term, Leader: id, IsLeader: m == leader})
		}
	}
	if leader != nil {
		c.appendLocked(nil)
	}
}

func (c *core) appendLocked(data []byte) { c.addLocked(group.Entry{Data: data}) }

func (c *core) addLocked(e group.Entry) {
	e.Index, e.Term = uint64(len(c.log)+1), c.term
	c.log = append(c.log, e)
	if !c.cut && !c.lags {
		c.leader.applyLocked(len(c.log))
	}
}

// applyLocked brings a member up to an index.
func (m *member) applyLocked(upTo int) {
	index, _ := m.store.Applied()
	if int(index) >= upTo {
		return
	}
	if err := m.store.Apply(m.core.log[index:upTo]); err != nil {
		m.core.t.Fatalf("apply on %s: %v", m.id, err)
	}
}

// catchUp brings a member up to the end of the log.
func (m *member) catchUp() {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	m.applyLocked(len(m.core.log))
}

// setCut takes the leader's quorum away or gives it back.
func (c *core) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; !cut && !c.lags && c.leader != nil {
		c.leader.applyLocked(len(c.log))
	}
}

// setLags has the leader apply later, or at once again.
func (c *core) setLags(lags bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lags = lags; !lags && !c.cut && c.leader != nil {
		c.leader.applyLocked(len(c.log))
	}
}

// setHold has proposals for which hold returns a channel wait for that; those behind them overtake
// them.
func (c *core) setHold(hold func(*storepb.Command) <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = hold
}

// proposedBytes is how large the log is.
func (c *core) proposedBytes() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.log {
		n += len(e.Data)
	}
	return n
}

func (m *member) Propose(term uint64, data []byte) error {
	m.core.mu.Lock()
	hold := m.core.hold
	m.core.mu.Unlock()
	if hold != nil {
		command := &storepb.Command{}
		if err := proto.Unmarshal(data[1:], command); err != nil {
			return err
		}
		if wait := hold(command); wait != nil {
			go func() {
				<-wait
				_ = m.append(term, data)
			}()
			return nil
		}
	}
	return m.append(term, data)
}

func (m *member) ProposeChange(term uint64, data []byte, next group.Configuration) error {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == m && c.term == term {
		c.changes = append(c.changes, next.String())
		c.addLocked(group.Entry{Data: data, Change: true})
	}
	return nil
}

func (m *member) append(term uint64, data []byte) error {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if m.core.leader == m && m.core.term == term {
		m.core.appendLocked(data)
	}
	return nil
}

func (m *member) ReadIndex(done func(error)) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if m.core.leader == nil || m.core.cut {
		done(errNoQuorum)
		return
	}
	m.applyLocked(len(m.core.log))
	done(nil)
}

func (m *member) Committed() uint64 {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if m.core.cut || m.core.leader != m {
		return m.store.AppliedIndex()
	}
	return uint64(len(m.core.log))
}

func (m *member) Lease() (uint64, bool) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.term, m.core.leader == m && !m.core.cut
}

// one is a core of one member that leads.
func one(t *testing.T, change func(*Config)) (*core, *Store) {
	t.Helper()
	c := newCore(t, 1, change)
	c.elect(c.members[0])
	t.Cleanup(c.close)
	return c, c.members[0].store
}

func do(t fataler, s *Store, command *storepb.Command) *storepb.Result {
	t.Helper()
	result, err := s.Do(context.Background(), command)
	if err != nil {
		t.Fatalf("do %v: %v", command, err)
	}
	return result
}

func put(t fataler, s *Store, key, value string) uint64 {
	t.Helper()
	return do(t, s, writes(Put([]byte(key), []byte(value)))).Revision
}

func get(t fataler, s *Store, key string) string {
	t.Helper()
	kv, err := s.Stale().Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if kv == nil {
		return "-"
	}
	return string(kv.Value)
}

// dump is everything that a member has, as bytes: replicated state has to be the same everywhere.
func (m *member) dump() []string {
	m.core.t.Helper()
	it, err := m.state.NewIter(
		&pebble.IterOptions{LowerBound: m.store.Layout.Span.Start, UpperBound: m.store.Layout.Span.End})
	if err != nil {
		m.core.t.Fatal(err)
	}
	defer it.Close()
	var all []string
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			m.core.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%q=%q", it.Key(), value))
	}
	return all
}

func same(t fataler, a, b []string) {
	t.Helper()
	for i := range max(len(a), len(b)) {
		x, y := "nothing", "nothing"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			t.Fatalf("the states differ: %s and %s", x, y)
		}
	}
}

// deletePrefix is an operation that deletes all keys with a prefix.
func deletePrefix(prefix []byte) *storepb.Op {
	key, end := PrefixRange(prefix)
	return &storepb.Op{
		Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{Key: key, RangeEnd: end}}}
}

// writes is a command that does operations, all at one revision.
func writes(ops ...*storepb.Op) *storepb.Command { return If(nil, ops, nil) }

// openSession is a command that opens a session; its result carries the session's id.
func openSession() *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_SessionOpen{SessionOpen: &storepb.SessionOpen{}}}
}

// closeSession is a command that forgets a session.
func closeSession(id uint64) *storepb.Command {
	return &storepb.Command{Session: id,
		Op: &storepb.Command_SessionClose{SessionClose: &storepb.SessionClose{}}}
}

// checkpoint is a command that says how long leases have left.
func checkpoint(leases ...*storepb.LeaseCheckpoint_Lease) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseCheckpoint{
		LeaseCheckpoint: &storepb.LeaseCheckpoint{Leases: leases}}}
}

// compactBy is a command that compacts in a way of its own.
func compactBy(m *storepb.Compact) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Compact{Compact: m}}
}
