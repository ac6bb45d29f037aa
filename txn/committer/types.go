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

// mapKey returns the key as one string.
func (k Key) mapKey() string {
	id := uint32(k.Keyspace)
	b := make([]byte, 0, 4+len(k.Key))
	b = append(b, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return string(append(b, k.Key...))
}

// Write is one write of a transaction.
type Write struct {
	Key
	// Value is the new value of the key, unless Delete is set.
	Value  []byte
	Delete bool
	// Lifetime is the lifetime of the value.
	Lifetime keys.Lifetime
}

// AllPartitions in Span.Hash stands for every hash number of the keyspace.
const AllPartitions = -1

// Span is a span of user keys of a keyspace.
type Span struct {
	Keyspace keys.KeyspaceID
	// Hash is the hash number in which the span lies, or AllPartitions. It is AllPartitions in a
	// range keyspace.
	Hash int
	keys.Span
}

// Reads are all reads of a transaction, as of At.
type Reads struct {
	At    hlc.Timestamp
	Keys  []Key
	Spans []Span
	// Locked are keys whose value at At was read under a lock of the transaction. The lock was
	// acquired at At or earlier, or its Prepare has shown that the key was not written between At
	// and the lock. No other transaction can write the key while the lock stands. Keys that expire
	// are in Keys too, since a lock does not keep a value from expiring.
	Locked []Key
	// Leaderships are the leaderships under whose volatile locks some of Keys were read, by
	// partition (Transaction.Leaderships).
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
	// Span is the partition's span of user keys; a hash partition holds only the keys in the span
	// that have its hash number.
	Span keys.Span
}

func (p Place) same(q Place) bool {
	return p.Partition == q.Partition && p.Generation == q.Generation
}

// Request is a request to one partition.
type Request struct {
	// Place is the partition for which the request was made.
	Place Place
	// Key is a key in the partition. The request finds its partition by Key if the partition has
	// changed.
	Key []byte
	// Fits reports whether the request may go to a partition other than Place that now holds Key;
	// nil allows any.
	Fits func(Place) bool
	// Write is set if the request changes something.
	Write bool
	// Slack is how long before the context's deadline the partition must stop waiting for locks.
	Slack time.Duration
	// Identity is set if the request may be sent again when its outcome is unknown.
	Identity *route.Identity
	// Command is the request message. The sender sets the routing fields.
	Command *kvpb.Request
}

// ErrMoved is the error of a request that does not fit the partition that now holds its key. The
// request did not run, unless the error also reports an unknown outcome.
var ErrMoved = errors.New("the partition has changed")

// Sender sends requests to partitions. Its methods may be called from any goroutine.
//
// A failed request returns a *route.Error. Send retries transient failures until its context ends.
type Sender interface {
	// Locate returns the partition that holds a key.
	Locate(ctx context.Context, k Key) (Place, error)
	// Overlapping returns the partitions that hold keys of a span, in order and without a gap.
	Overlapping(ctx context.Context, s Span) ([]Place, error)
	// Send sends a request to its partition and returns the response, which is not an error
	// response.
	Send(ctx context.Context, r *Request) (*kvpb.Response, error)
	// Executed finds out whether a request that was sent with an Identity, and makes a version of a
	// key, took effect, and at which timestamp. A request that has not taken effect never will.
	Executed(ctx context.Context, r *Request, key []byte) (at hlc.Timestamp, executed bool, err error)
	// SendAll is Send for several requests, at most limit of them at a time; requests to one node
	// are sent together. The caller's goroutine calls landed once for each request as it ends. If
	// landed returns an error, SendAll ends the other requests, calls landed no more, and returns
	// that error.
	SendAll(ctx context.Context, limit int, all []*Request,
		landed func(i int, response *kvpb.Response, err error) error) error
	// Now returns the cluster's time as far as this client knows, at or above every timestamp that
	// it has seen. age is a closer estimate, which may be below now, and serves to compare
	// transactions of several clients.
	Now(ctx context.Context) (now, age hlc.Timestamp, err error)
	// MaxClockOffset returns how far the clocks of the cluster may differ; zero if that is not
	// known.
	MaxClockOffset() time.Duration
	// MaxAge returns the maximum age of transactions in a keyspace; zero if it is not known.
	MaxAge(keyspace keys.KeyspaceID) time.Duration
}
