package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

// NearestStaleness is the greatest age of what Nearest reads, beyond the keyspace's ClosedLag,
// unless MaxStaleness says otherwise.
const NearestStaleness = 10 * time.Second

// FreshnessOption lets any replica of a partition answer a read, and says how old its answer may
// be: Nearest, MaxStaleness, AnyStaleness, ReadYourWrites, LinearizableFollower.
//
// Replicas that do not lead answer without asking the leader, a second or so in the past: at a
// timestamp that is closed there, at or below which nothing is written any more. So such a read
// needs neither a leader nor a connection to it; if it may be older it takes no lock and waits for
// none. It reads the state at one timestamp in all partitions that it touches: never a part of a
// transaction, never a mixture.
//
// The replica in the client's zone is asked (Locality), else one in its region, else the one that
// answers fastest; among equally near replicas each partition has its own. A replica that cannot
// answer, because it lags behind, has just started, does not respond, or has a transaction's lock
// in the way, is passed over, and at last the leader answers.
type FreshnessOption struct{ apply func(*query) }

func (o FreshnessOption) get(q *query)   { o.apply(q) }
func (o FreshnessOption) count(q *query) { o.apply(q) }
func (o FreshnessOption) scan(q *query)  { o.apply(q) }
func (o FreshnessOption) view(q *query)  { o.apply(q) }

// ViewOption is an option of View: those of FreshnessOption. SnapshotAt takes Nearest.
type ViewOption interface{ view(*query) }

// Nearest lets the nearest replica answer, at the latest timestamp that is closed there.
//
// Its answer is about as old as the keyspace's ClosedLag, a second by default, and at most
// NearestStaleness older: a replica that has been cut off for longer is passed over. Two reads may
// be answered by different replicas, and the later one may read an earlier state: only
// ReadYourWrites never goes back.
//
// Together with At, the nearest replica answers for exactly that timestamp, with the same result
// whichever replica answers. A replica that has not closed it yet is given a tenth of a second.
func Nearest() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.nearest = true }}
}

// MaxStaleness lets the nearest replica answer that is fresh enough: the read sees every write that
// was acknowledged longer than d before the call began, whichever clocks the writes and the answer
// come from. To be sure of that, the client adds twice the maximum clock offset (250 ms by default)
// to its estimate of the servers' time. So with a bound of a second or less mostly the leader
// answers, and with one below twice the offset always; from two seconds on any replica that keeps
// up does.
//
// The later of two reads may read an earlier state. With ReadYourWrites both bounds hold.
func MaxStaleness(d time.Duration) FreshnessOption {
	return FreshnessOption{func(q *query) {
		q.fresh.within, q.fresh.bounded = d, true
		if d <= 0 {
			q.bad = "MaxStaleness must be above 0; leave it out for the latest state"
		}
	}}
}

// AnyStaleness lets the nearest replica answer with what is closed there, however long ago: even a
// replica that is cut off from all others, while there is no leader. ReadAt says how old the answer
// is. The later of two reads may read an earlier state.
func AnyStaleness() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.any = true }}
}

// ReadYourWrites lets the nearest replica answer that has all that this client has written and
// read, with whichever options. Within one client such reads never go back in time: a key is as the
// client wrote or read it last, or newer. That holds for what one call has returned before another
// one begins. Writes of other clients are seen about a second later.
//
// Clients pass versions on by Observe: a client that observes the version of another client's write
// reads that write, too. (Client.Timestamp returns a higher timestamp; for a second after that was
// observed the leader answers.)
//
// A replica that lacks something waits for it, for a tenth of a second at most; then the leader
// answers. So what was written within the last second is mostly read from the leader.
func ReadYourWrites() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.own = true }}
}

// LinearizableFollower lets the nearest replica answer with the latest state: like a read without
// options, it sees every write that was acknowledged before the call began. The leader is asked one
// small question first. So such a read takes no less time than a read from the leader, and depends
// on the leader as much; it spares the leader the reading, and the network between them the data. A
// read by pages asks once.
//
// If the leader is the nearest replica it answers itself; it also does if the replica lags behind
// by more than a tenth of a second.
func LinearizableFollower() FreshnessOption {
	return FreshnessOption{func(q *query) { q.fresh.linearizable = true }}
}

// ReadInfo says at which timestamp a read has read. ReadAt fills it in.
type ReadInfo struct {
	// At is the timestamp: the versions at or below it were read. The same read with At gives the
	// same result, from any replica.
	At Timestamp
	// Age is how old that was when the read returned: every write that was acknowledged longer ago
	// is seen. It is never too small: twice the maximum clock offset is added to the clocks'
	// difference, unless a leader has answered with its latest state. Negative: the time is not
	// known.
	Age time.Duration
	// Node is the node that answered; 0 if several did.
	Node uint64
}

// InfoOption is ReadAt.
type InfoOption struct{ apply func(*query) }

func (o InfoOption) get(q *query)   { o.apply(q) }
func (o InfoOption) count(q *query) { o.apply(q) }
func (o InfoOption) scan(q *query)  { o.apply(q) }

// ReadAt makes a read report the timestamp that it has read, and how old that is. It is filled in
// when Get, BatchGet or Count return without an error, or with ErrNotFound, and in a Scan before
// the first pair.
func ReadAt(to *ReadInfo) InfoOption {
	return InfoOption{func(q *query) {
		q.info = to
		if to == nil {
			q.bad = "ReadAt with nothing to fill in"
		}
	}}
}

// freshness is what the options of a read require of a replica.
type freshness struct {
	nearest, any, own, linearizable bool
	// bounded is set if within is given.
	bounded bool
	within  time.Duration
}

// near reports that any replica may answer.
func (f *freshness) near() bool {
	return f.nearest || f.any || f.own || f.bounded || f.linearizable
}

// conflict returns which options contradict each other; "" if none do.
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

// sessionWait is how long a replica waits for what the session has seen.
const sessionWait = 100 * time.Millisecond

// followerRead is a linearisable call whose data comes from replicas.
var followerRead = &reader.Near{Linearizable: true}

// nearRead begins a call that any replica may answer; nil if only leaders may.
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
		return nil, nil // only the latest state is sure to be so fresh
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
