package fakeserver

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Store has the data of all nodes. The caller must make one call at a time (Cluster does).
type Store struct {
	TB testing.TB
	// Random decides when mistakes are made.
	Random   *rand.Rand
	Mistakes Mistakes
	// PageRows bounds every page, as a server's own limits would.
	PageRows int
	// Partitions has all partitions, by id. A Store without a Cluster has none, and must set
	// LockWaits: without LockWaits a decision resolves the locks in all Partitions.
	Partitions map[uint64]*Partition
	// LockWaits: see the package's documentation.
	LockWaits bool

	// later calls f after some time. Like all calls, f must not run together with other calls.
	later func(d time.Duration, f func())

	records map[string]*Record
	// onePhase has the executed one-phase commits and their timestamps.
	onePhase map[WriteID]hlc.Timestamp
	deleted  map[WriteID]*kvpb.DeleteRangeResponse
}

// WriteID identifies a write of a client. A retry has the same id.
type WriteID struct{ Client, Sequence uint64 }

// NewStore makes an empty Store.
func NewStore(t testing.TB) *Store {
	return &Store{
		TB: t, Random: rand.New(rand.NewPCG(1, 2)), PageRows: 1 << 30,
		Partitions: make(map[uint64]*Partition),
		records:    make(map[string]*Record),
		onePhase:   make(map[WriteID]hlc.Timestamp),
		deleted:    make(map[WriteID]*kvpb.DeleteRangeResponse),
	}
}

// Clock is a node's clock, with the highest timestamp that the node has given out.
type Clock struct {
	*hlc.Clock
	given hlc.Timestamp
}

// NewClock makes the clock of a node from a physical clock.
func NewClock(physical hlc.Physical) *Clock {
	return &Clock{Clock: hlc.NewClock(physical, hlc.FixedBound(MaxOffset))}
}

// MaxOffset is the bound of the difference of clocks.
const MaxOffset = 250 * time.Millisecond

// Give notes that a node gave out a timestamp.
func (c *Clock) Give(at hlc.Timestamp) { c.given = hlc.Max(c.given, at) }

// Told returns the time in a node's answers: at or above every timestamp that the node has given
// out.
func (c *Clock) Told() hlc.Timestamp { return hlc.Max(c.Now(), c.given) }

// IsWrite says whether a request is replicated.
func IsWrite(r *kvpb.Request) bool {
	switch r.Command.(type) {
	case *kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap,
		*kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange, *kvpb.Request_Prepare,
		*kvpb.Request_EndTransaction, *kvpb.Request_Resolve, *kvpb.Request_HeartbeatTransaction:
		return true
	}
	return false
}

// Execute executes a request for one partition at the leader with this clock. If Execute says that
// the request must wait for a lock, the request has had no effect, and the caller executes it again
// later.
func (s *Store) Execute(p *Partition, clock *Clock, client uint64, r *kvpb.Request) (
	answer *kvpb.Response, wait bool) {
	if !IsWrite(r) {
		switch c := r.Command.(type) {
		case *kvpb.Request_Refresh:
			return s.refresh(p, clock, c.Refresh)
		default:
			return s.read(p, clock, r), false
		}
	}
	if r.Sequence == 0 {
		s.TB.Errorf("a write without a sequence: %v", r)
	}
	by := WriteID{client, r.Sequence}
	w := &write{store: s, partition: p, clock: clock, by: by, session: wire.FromTimestamp(r.Session)}
	switch c := r.Command.(type) {
	case *kvpb.Request_Prepare:
		return w.prepare(c.Prepare)
	case *kvpb.Request_EndTransaction:
		return s.end(clock, c.EndTransaction), false
	case *kvpb.Request_Resolve:
		return s.resolveAll(p, c.Resolve), false
	case *kvpb.Request_HeartbeatTransaction:
		return s.heartbeat(c.HeartbeatTransaction), false
	default:
		return w.run(r), false
	}
}

// Refusal is the answer to a request that is refused.
func Refusal(code kvpb.ErrorCode, message string) *kvpb.Response {
	return &kvpb.Response{Error: &kvpb.Error{Code: code, Message: message}}
}

func cloned[M proto.Message](m M) M { return proto.Clone(m).(M) }
