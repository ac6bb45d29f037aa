package committer

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Key is a user key of a keyspace.
type Key struct {
	Keyspace keys.KeyspaceID
	Key      []byte
}

func (k Key) same(other Key) bool {
	return k.Keyspace == other.Keyspace && bytes.Equal(k.Key, other.Key)
}

// mapKey is the key as one string.
func (k Key) mapKey() string {
	id := uint32(k.Keyspace)
	b := make([]byte, 0, 4+len(k.Key))
	b = append(b, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return string(append(b, k.Key...))
}

// Write is one write of a transaction.
type Write struct {
	Key
	// Value is what the key gets, unless Delete is set.
	Value  []byte
	Delete bool
	// Lifetime is that of the value.
	Lifetime keys.Lifetime
}

// AllPartitions as a Span's Hash means every hash number of the keyspace.
const AllPartitions = -1

// Span is user keys of a keyspace.
type Span struct {
	Keyspace keys.KeyspaceID
	// Hash is the hash number that the span lies in, or AllPartitions. It is AllPartitions in a range
	// keyspace.
	Hash int
	keys.Span
}

// Reads is what a transaction has read, all of it as of At.
type Reads struct {
	At    hlc.Timestamp
	Keys  []Key
	Spans []Span
	// Locked are keys whose value at At was read under a lock of the transaction that has stood
	// since At or earlier, or has shown that the key was not written between At and the lock:
	// nothing else can be written there while the lock stands. Those that expire are among Keys too:
	// a lock does not keep a value from that.
	Locked []Key
	// Leaderships are those under which some of Keys were read, under volatile locks, by partition
	// (Transaction.Leaderships).
	Leaderships map[keys.PartitionID]*kvpb.Leadership
}

func (r *Reads) empty() bool { return len(r.Keys) == 0 && len(r.Spans) == 0 }

// Place is a partition, as far as is known.
type Place struct {
	Keyspace   keys.KeyspaceID
	Partition  keys.PartitionID
	Generation uint64
	// Hash is the number of a hash partition; AllPartitions for a partition of a range keyspace.
	Hash int
	// Span are its user keys; in a hash keyspace, those that have the number.
	Span keys.Span
}

func (p Place) same(q Place) bool {
	return p.Partition == q.Partition && p.Generation == q.Generation
}

// Request is a request to one partition.
type Request struct {
	// Place is where it was made for.
	Place Place
	// Key is a key in it, by which it finds its way if the partition has changed.
	Key []byte
	// Fits says whether the request may go to another partition than Place, which is what holds Key
	// by now; nil is to any.
	Fits func(Place) bool
	// Write says that the request changes something.
	Write bool
	// Slack is how long before the context's deadline the partition is to give up waiting for
	// locks.
	Slack time.Duration
	// Identity is set if the request may be sent again when its outcome is unknown.
	Identity *route.Identity
	// Command is the request proper. Routing fields are the sender's.
	Command *kvpb.Request
}

// ErrMoved is how a request ends that does not fit the partition that holds its key by now. Unless
// the error says that the outcome is unknown as well, it did not run.
var ErrMoved = errors.New("the partition has changed")

// Sender brings requests to partitions. Its methods may be called from any goroutine.
//
// Failed requests end with a *route.Error. Send retries transient failures, until its context ends.
type Sender interface {
	// Locate names the partition that holds a key.
	Locate(ctx context.Context, k Key) (Place, error)
	// Overlapping names the partitions that hold keys of a span, in order and without a gap.
	Overlapping(ctx context.Context, s Span) ([]Place, error)
	// Send brings a request to its partition and returns the response, which has no error in it.
	Send(ctx context.Context, r *Request) (*kvpb.Response, error)
	// Executed finds out whether a request with an Identity that was sent, and makes a version of a
	// key, took effect, and at which timestamp. If it has not, it never will.
	Executed(ctx context.Context, r *Request, key []byte) (at hlc.Timestamp, executed bool, err error)
	// SendAll is Send for several requests, at most limit of them at a time; those of one node
	// travel together. landed is called once for each, as they end, by the caller's goroutine. An
	// error that it returns is what SendAll returns: it ends the other requests, whose landed is
	// not called any more.
	SendAll(ctx context.Context, limit int, all []*Request,
		landed func(i int, response *kvpb.Response, err error) error) error
	// Now is the cluster's time as far as is known, at or above everything that this client has
	// seen. age is an estimate that is closer, and may be below: by it transactions of several
	// clients are compared.
	Now(ctx context.Context) (now, age hlc.Timestamp, err error)
	// MaxClockOffset is how far the clocks of the cluster may be apart; zero if that is not known.
	MaxClockOffset() time.Duration
	// MaxAge is the maximum age of transactions in a keyspace; zero if it is not known.
	MaxAge(keyspace keys.KeyspaceID) time.Duration
}
