package config

import (
	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Group is what a replica needs of its Raft group.
type Group interface {
	// Propose appends data to the log if this replica leads at term, in the order of the calls. It
	// does not wait. Dropped proposals are reported by LeadershipChanged: with another term or
	// leader, or once more with the same. data belongs to the group from here on. An error means
	// that nothing was or will be appended.
	Propose(term uint64, data []byte) error
	// ProposeChange is Propose for data that changes the replicas.
	ProposeChange(term uint64, data []byte, next group.Configuration) error
	// ReadIndex calls done(nil) when the local applied state has reached an index that was
	// committed when a quorum confirmed the leader, after the call; or done(error). It does not
	// wait, and done must not block.
	ReadIndex(done func(error))
	// Lease reports whether this replica leads at term and holds the leader lease at this moment.
	// It takes no lock.
	Lease() (term uint64, ok bool)
	// LeaseLeft returns how much longer the lease stands; no other replica leads before its end. It
	// takes no lock.
	LeaseLeft() time.Duration
	// Leader returns the replica that leads, 0 if unknown, and its term.
	Leader() (keys.ReplicaID, uint64)
	// Appended returns the index of an entry of the log. All entries behind it were proposed when
	// this replica knew that what it has applied is committed.
	Appended() uint64
	// Wake wakes the group if it sleeps.
	Wake()
	// TransferLeader gives up the lease and the leadership of a term, if this replica leads at it,
	// and asks another replica to lead. Earlier proposals come earlier in the log.
	TransferLeader(term uint64, to keys.ReplicaID)
}

// Pending is a request on its way through a replica. The replica owns the request until it has
// called Reply, exactly once, from any goroutine: neither the request nor the memory of its keys
// and values may be changed until then. Reply must not block, and the rows of a page are valid only
// until it returns.
type Pending struct {
	// Client is the client's id: with the request's sequence it is the request id.
	Client  uint64
	Request *kvpb.Request
	Reply   func(*kvpb.Response)
	// Arrived is when the request came; its timeout starts there.
	Arrived time.Time
	// Timing has the parts of the request's time; nil if nobody wants to know. It is not used after
	// Reply.
	Timing *timing.Request
	// Share is the place of the request's tenant, who is charged for what the request has cost; nil
	// if the request did not wait to begin.
	Share *workqueue.Share
}

// Deadline returns when the caller of a request stops waiting; zero: never.
func (p *Pending) Deadline() time.Time {
	t := p.Request.GetTimeoutMicros()
	if t == 0 || t >= uint64(1<<62)/1000 {
		return time.Time{}
	}
	return p.Arrived.Add(time.Duration(t) * time.Microsecond)
}

// Expired reports that the client no longer waits for the answer.
func (p *Pending) Expired(now time.Time) bool {
	t := p.Request.GetTimeoutMicros()
	return t != 0 && t < uint64(1<<62)/1000 && now.Sub(p.Arrived) > time.Duration(t)*time.Microsecond
}
