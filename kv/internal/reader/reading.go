package reader

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Keyspace is a keyspace that is read by a connection.
type Keyspace struct {
	Conn *conn.Conn
	ID   keys.KeyspaceID
	// Hashed is set if it is partitioned by hash, otherwise by range.
	Hashed bool
}

// Query is what a scan or a count reads.
type Query struct {
	Span keys.Span
	// At is the timestamp, if HasAt is set; otherwise one is found.
	At    hlc.Timestamp
	HasAt bool
	// Limit ends a scan after so many rows; 0: no limit.
	Limit             int
	Reverse, KeysOnly bool
	// PageSize is the greatest number of rows of a page; 0: as many as fit.
	PageSize int
}

// Snapshot is a timestamp at which partitions are read. It may be used by several goroutines.
type Snapshot struct {
	at hlc.Timestamp
	// reading is the transaction, or View, to which the timestamp belongs; nil if it belongs to
	// this read alone. It knows what is uncertain.
	reading Reading
	// certain is set if nothing is uncertain in what is read.
	certain bool
	// movable is set if nothing was read yet, so that the node that is asked first chooses the
	// timestamp, or may move it up.
	movable bool
}

// Reading is a transaction, or a View, that reads. Its methods may be called from any goroutine,
// except for ReadAt.
type Reading interface {
	// Context returns the context that a read sends to the node that leads a partition. movable is
	// set if nothing was read yet, so that the node may choose the timestamp or move it up;
	// certain, if nothing is uncertain in what is read.
	Context(p *route.Partition, node keys.NodeID, movable, certain bool) *kvpb.ReadContext
	// Answered notes the clocks of the node that answered, and of the leader that admitted the
	// read.
	Answered(a route.Answer)
	// Heard notes the clock of a node.
	Heard(node keys.NodeID, now *kvpb.Timestamp)
	// ReadAt takes the timestamp at which a node has read, and returns that of the Reading.
	ReadAt(a route.Answer, at hlc.Timestamp, movable bool) (hlc.Timestamp, error)
}

// Of returns a snapshot of a transaction, or View, at its timestamp. A movable snapshot is for one
// partition first; there is no other read at that time.
func Of(r Reading, at hlc.Timestamp, movable, certain bool) *Snapshot {
	return &Snapshot{at: at, reading: r, movable: movable && !certain, certain: certain}
}

// Exactly returns a snapshot at a timestamp at which nothing is uncertain.
func Exactly(at hlc.Timestamp) *Snapshot { return &Snapshot{at: at} }

// moment returns the timestamp; zero if s is nil: the node that answers chooses it.
func (s *Snapshot) timestamp() hlc.Timestamp {
	if s == nil {
		return hlc.Timestamp{}
	}
	return s.at
}

// context is what the transaction that reads says to leader l of a partition; nil if there is none.
func (s *Snapshot) context(p *route.Partition, l route.Leader) *kvpb.ReadContext {
	if s.reading == nil {
		return nil
	}
	return s.reading.Context(p, l.Node, s.movable, s.certain)
}

// answered notes which node answered a page, and at which timestamp.
func (s *Snapshot) answered(a route.Answer, at hlc.Timestamp) error {
	if s.reading != nil {
		s.reading.Answered(a)
	}
	if s.movable {
		at, err := s.reading.ReadAt(a, at, true)
		if err != nil {
			return err
		}
		s.at, s.movable = at, false
	}
	return nil
}
