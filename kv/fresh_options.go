package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

// NearestStaleness is the maximum age of the state that Nearest reads, in addition to the
// keyspace's ClosedLag. MaxStaleness sets another limit.
const NearestStaleness = 10 * time.Second

// FreshnessOption lets any replica of a partition answer a read, and limits how old the answer may
// be: Nearest, MaxStaleness, AnyStaleness, ReadYourWrites, LinearizableFollower.
//
// Replicas that do not lead answer without asking the leader, with a state about a second old: they
// read at a timestamp that is closed at the replica. No write happens at or below a closed
// timestamp any more. So such a read needs neither a leader nor a connection to it. It reads the
// state at one timestamp in all partitions that it touches, and never sees a part of a transaction.
//
// The client asks the replica in its zone (Locality), or else one in its region, or else the one
// that answers fastest. Among equally near replicas, the choice depends on the partition. A replica
// is passed over if it lags behind, has just started, does not respond, or has a transaction's lock
// on the data. If no other replica can answer, the leader does.
type FreshnessOption struct{ apply func(*query) }

func (o FreshnessOption) get(q *query)   { o.apply(q) }
func (o FreshnessOption) count(q *query) { o.apply(q) }
func (o FreshnessOption) scan(q *query)  { o.apply(q) }
func (o FreshnessOption) view(q *query)  { o.apply(q) }

// ViewOption is an option of View: the options of FreshnessOption. SnapshotAt accepts Nearest.
type ViewOption interface{ view(*query) }

// Nearest lets the nearest replica answer, at the latest timestamp that is closed at that replica.
//
// The answer is about as old as the keyspace's ClosedLag, a second by default, and at most
// NearestStaleness older: a replica that was cut off for longer is passed over. Two reads may be
// answered by different replicas, and the later read may see an earlier state. Only ReadYourWrites
// never goes back in time.
//
// Together with At, the nearest replica answers for exactly that timestamp. The result is the same
// whichever replica answers. A replica that has not closed the timestamp yet gets a tenth of a
// second to do so.
func Nearest() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.nearest = true }}
}

// MaxStaleness lets the nearest replica answer that is fresh enough: the read sees every write that
// was acknowledged more than d before the call began, whatever the clocks of the servers show. To
// guarantee that, the client adds twice the maximum clock offset (250 ms by default) to its
// estimate of the servers' time. So with a limit of a second or less, usually the leader answers.
// With a limit below twice the offset, the leader always answers. From two seconds on, any replica
// that keeps up answers.
//
// The later of two reads may see an earlier state. With ReadYourWrites in addition, both guarantees
// hold.
func MaxStaleness(d time.Duration) FreshnessOption {
	return FreshnessOption{func(q *query) {
		q.fresh.within, q.fresh.bounded = d, true
		if d <= 0 {
			q.bad = "MaxStaleness must be above 0; leave it out for the latest state"
		}
	}}
}

// AnyStaleness lets the nearest replica answer with the state that is closed at that replica,
// however old it is. Even a replica that is cut off from all others answers, while there is no
// leader. ReadAt reports how old the answer is. The later of two reads may see an earlier state.
func AnyStaleness() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.any = true }}
}

// ReadYourWrites lets the nearest replica answer that has everything that this client has written
// and read, with any options. Within one client such reads never go back in time: a key is as the
// client wrote or read it last, or newer. That is true for results that one call has returned
// before another one begins. Writes of other clients are visible about a second later.
//
// Clients pass versions on with Observe: a client that observes the version of another client's
// write sees that write, too. (Client.Timestamp returns a higher timestamp. For a second after a
// client has observed such a timestamp, the leader answers.)
//
// A replica that lacks something waits for it, for at most a tenth of a second. Then the leader
// answers. So data that was written within the last second is usually read from the leader.
func ReadYourWrites() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.own = true }}
}

// LinearizableFollower lets the nearest replica answer with the latest state: like a read without
// options, the read sees every write that was acknowledged before the call began. First, the client
// asks the leader one small question. So such a read takes at least as long as a read from the
// leader, and needs the leader. But the leader does not have to read the data, and the data does
// not travel from the leader to the client. A read in several pages asks the leader once.
//
// If the leader is the nearest replica, or if the replica lags behind by more than a tenth of a
// second, the leader answers.
func LinearizableFollower() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.linearizable = true }}
}

// ReadInfo reports the timestamp of a read. ReadAt fills it in.
type ReadInfo struct {
	// At is the timestamp: the read saw the versions at or below it. The same read with At gives the
	// same result, from any replica.
	At Timestamp
	// Age is the age of the timestamp when the read returned: every write that was acknowledged longer
	// ago was seen. It is never too small: it includes twice the maximum clock offset, unless a leader
	// has answered with its latest state. It is negative if the time is not known.
	Age time.Duration
	// Node is the node that answered, or 0 if several nodes did.
	Node uint64
}

// InfoOption is the type of the option ReadAt.
type InfoOption struct{ apply func(*query) }

func (o InfoOption) get(q *query)   { o.apply(q) }
func (o InfoOption) count(q *query) { o.apply(q) }
func (o InfoOption) scan(q *query)  { o.apply(q) }

// ReadAt makes a read report its timestamp, and how old that is. Get, BatchGet and Count fill it in
// when they return without an error, or with ErrNotFound. Scan fills it in before the first pair.
func ReadAt(to *ReadInfo) InfoOption {
	return InfoOption{func(q *query) {
		q.info = to
		if to == nil {
			q.bad = "ReadAt with nothing to fill in"
		}
	}}
}

// freshness has the requirements of a read's options for a replica.
type freshness struct {
	nearest, any, own, linearizable bool
	// bounded is set if within is given.
	bounded bool
	within  time.Duration
}

// near reports whether any replica may answer.
func (f *freshness) near() bool {
	return f.nearest || f.any || f.own || f.bounded || f.linearizable
}

// conflict returns which options contradict each other. It is empty if none do.
func (f *freshness) conflict(hasAt bool) string {
	switch {
	case hasAt && (f.any || f.own || f.bounded || f.linearizable):
		return "At names the moment: of the options that say how old it may be, only Nearest " +
			"goes with it"
	case f.linearizable && (f.nearest || f.any || f.own || f.bounded):
		return "LinearizableFollower reads the latest state: leave out the options that say how old " +
			"it may be"
	case f.any && (f.own || f.bounded):
		return "AnyStaleness takes what MaxStaleness and ReadYourWrites refuse: leave out one " +
			"or the other"
	}
	return ""
}

// sessionWait is the time for which a replica waits for the data that the session has seen.
const sessionWait = 100 * time.Millisecond

// followerRead describes a linearisable call whose data comes from replicas.
var followerRead = &reader.Near{Linearizable: true}

// nearRead begins a call that any replica may answer. It returns nil if only leaders may answer.
func (c *Client) nearRead(ctx context.Context, ks *route.Keyspace,
	q *query) (*reader.Near, error) {
	f := &q.fresh
	if !f.near() {
		return nil, nil
	}
	if f.linearizable {
		return followerRead, nil
	}
	n := &reader.Near{}
	switch {
	case q.HasAt:
		n.Near.Freshness = route.FreshExact
		return n, nil
	case f.any:
		n.Near.Freshness = route.FreshAny
		return n, nil
	case f.own:
		n.Near.Freshness, n.Near.Wait = route.FreshSession, sessionWait
		n.Near.AtLeast = c.conn.Sender.Clock.Seen()
	case f.bounded:
		n.Near.Freshness = route.FreshBounded
	default:
		n.Near.Freshness = route.FreshNearest
	}
	within := f.within
	if !f.bounded {
		if f.own && !f.nearest {
			return n, nil
		}
		within = NearestStaleness +
			time.Duration(ks.Info.GetClosedTimestampLagMillis())*time.Millisecond
	}
	earliest, latest, err := c.conn.Clocks(ctx)
	if err != nil {
		return nil, err
	}
	least := latest.Add(-within)
	if !least.Less(earliest) {
		return nil, nil // only the latest state is certain to be fresh enough
	}
	n.Near.AtLeast = hlc.Max(n.Near.AtLeast, least)
	return n, nil
}

// note fills in the ReadInfo of a read. latest is set if leaders answered with the latest state.
func (c *Client) note(q *query, began time.Time, at Timestamp, node keys.NodeID, latest bool) {
	if q.info == nil {
		return
	}
	*q.info = ReadInfo{At: at, Node: uint64(node), Age: c.conn.Age(at)}
	if latest {
		q.info.Age = time.Since(began)
	}
}
