package refusal

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Refuser makes the refusals of one replica.
type Refuser struct {
	Partition keys.PartitionID
	Self      keys.ReplicaID
	Group     config.Group
	Node      *config.Node
	// Descriptor returns the partition's present descriptor.
	Descriptor func() *clusterpb.Partition
}

// New returns an error response to a request.
func New(request *kvpb.Request, code kvpb.ErrorCode, format string, args ...any) *kvpb.Response {
	return &kvpb.Response{Id: request.GetId(),
		Error: &kvpb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// refuse is New with the partition named first.
func (r *Refuser) refuse(q *kvpb.Request, code kvpb.ErrorCode, format string,
	args ...any) *kvpb.Response {
	return New(q, code, "partition %s: %s", r.Partition, fmt.Sprintf(format, args...))
}

// leaderHint returns the leader, as far as this replica knows; nil if it knows of none.
func (r *Refuser) leaderHint() *clusterpb.Leader {
	leader, term := r.Group.Leader()
	if leader == 0 {
		return nil
	}
	for _, replica := range r.Descriptor().GetReplicas() {
		if keys.ReplicaID(replica.GetReplica()) == leader {
			return &clusterpb.Leader{Partition: uint64(r.Partition), Node: replica.GetNode(), Term: term}
		}
	}
	return nil
}

// NotLeader refuses a request that did not run and never will.
func (r *Refuser) NotLeader(q *kvpb.Request) *kvpb.Response {
	hint := r.leaderHint()
	if hint == nil {
		if lost := r.lostQuorum(); lost != "" {
			return New(q, kvpb.ErrorCode_NO_QUORUM, "partition %s has no quorum: %s", r.Partition, lost)
		}
		return r.refuse(q, kvpb.ErrorCode_NOT_LEADER, "no leader of it is known at present; try again")
	}
	response := r.refuse(q, kvpb.ErrorCode_NOT_LEADER,
		"node %s leads it, at term %d; the request went to another replica, or names another term",
		keys.NodeID(hint.Node), hint.Term)
	response.Error.Leader = hint
	return response
}

// lostQuorum names the nodes that do not answer, if so many do not that no replica can lead;
// otherwise it is empty.
func (r *Refuser) lostQuorum() string {
	var voters int
	var silent []string
	is := map[keys.ReplicaID]bool{}
	for _, replica := range r.Descriptor().GetReplicas() {
		if replica.GetRole() == clusterpb.ReplicaRole_LEARNER {
			continue
		}
		voters++
		if node := keys.NodeID(replica.GetNode()); r.Node.Silent(node) {
			silent = append(silent, "node "+node.String())
			is[keys.ReplicaID(replica.GetReplica())] = true
		}
	}
	members := group.ConfigurationOf(r.Descriptor())
	if members.Empty() || members.Quorum(func(id keys.ReplicaID) bool { return !is[id] }) {
		return ""
	}
	return fmt.Sprintf("%d of its %d replicas, on %s, are silent", len(silent), voters,
		strings.Join(silent, " and "))
}

// UnknownOutcome answers a write that may still take effect.
func (r *Refuser) UnknownOutcome(q *kvpb.Request) *kvpb.Response {
	text := "leadership was lost while the write was being replicated"
	if lost := r.lostQuorum(); lost != "" {
		text = "the write could not be replicated to a quorum: " + lost
	}
	response := r.refuse(q, kvpb.ErrorCode_OUTCOME_UNKNOWN, "%s; it may or may not have taken effect",
		text)
	response.Error.Leader = r.leaderHint()
	return response
}

// Unconfirmed refuses a read whose leader no majority has confirmed. It blames nodes that are down
// only if some are: the leader may have lost its lease to a clock, and its confirmation to a slow
// network.
func (r *Refuser) Unconfirmed(q *kvpb.Request, err error) *kvpb.Response {
	if lost := r.lostQuorum(); lost != "" {
		return New(q, kvpb.ErrorCode_NO_QUORUM, "partition %s has no quorum to confirm its leader: %s",
			r.Partition, lost)
	}
	if _, sure := r.Node.Clock.Reading(); !sure {
		return r.refuse(q, kvpb.ErrorCode_CLOCK_SKEW, "the clock of its leader has just been set, or "+
			"its machine was suspended, and a majority of its replicas has not confirmed yet that it "+
			"still leads")
	}
	return r.refuse(q, kvpb.ErrorCode_NODE_UNHEALTHY,
		"a majority of its replicas did not confirm its "+
			"leader in time, although none of them is known to be down (%s); try again", err)
}

// Overloaded refuses a request because too many wait already. what names the queue.
func (r *Refuser) Overloaded(q *kvpb.Request, what string) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_OVERLOADED, "too many %s; try again more slowly", what)
}

// LogBehind refuses a write while too much waits for the raft log.
func (r *Refuser) LogBehind(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_OVERLOADED,
		"too much waits for this server's raft log; try again more slowly")
}

// DeadlineExceeded answers a request whose client no longer waits.
func (r *Refuser) DeadlineExceeded(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_DEADLINE_EXCEEDED,
		"the request waited longer than its timeout, and did not run")
}

// Closed is the answer of a replica that is closed: the sender shall look elsewhere.
func (r *Refuser) Closed(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_NOT_LEADER, "this replica is closed")
}

// Failed is the answer of a replica that has failed with an error.
func (r *Refuser) Failed(q *kvpb.Request, err error) *kvpb.Response {
	code := kvpb.ErrorCode_NODE_UNHEALTHY
	if storage.IsDamage(err) {
		code = kvpb.ErrorCode_REPLICA_DAMAGED
	}
	return r.refuse(q, code, "this replica has failed: %s", r.explain(err))
}

// ReadError answers a request that failed to read the engine.
func (r *Refuser) ReadError(q *kvpb.Request, err error) *kvpb.Response {
	code := kvpb.ErrorCode_NODE_UNHEALTHY
	if storage.IsDamage(err) {
		code = kvpb.ErrorCode_CORRUPTION
	}
	r.Node.Logger.Error("reading the state failed", "partition", r.Partition, "error", err)
	return r.refuse(q, code, "reading its state failed: %s", r.explain(err))
}

// explain returns the text of an engine's error, without the name of the partition.
func (r *Refuser) explain(err error) string {
	return strings.TrimPrefix(engine.Explain(err), fmt.Sprintf("partition %s: ", r.Partition))
}

// LeadershipChanged refuses a commit because values that were read under volatile locks may never
// have been committed.
func (r *Refuser) LeadershipChanged(q *kvpb.Request, reads *kvpb.ReadSet) *kvpb.Response {
	r.Node.Metrics.Transactions.Conflicts.Inc()
	return command.LeaderChanged(r.Descriptor(), q, reads)
}

// Retried refuses an attempt whose client no longer expects an answer: a later attempt was
// evaluated. It has no effect.
func (r *Refuser) Retried(q *kvpb.Request) *kvpb.Response {
	response := r.refuse(q, kvpb.ErrorCode_NOT_LEADER, "the request waited for a lock, and was sent "+
		"again meanwhile; this attempt of it did not run")
	response.Error.Leader = r.leaderHint()
	return response
}

// Locked refuses a request whose time ran out while it waited for a lock.
func (r *Refuser) Locked(q *kvpb.Request, c *kvpb.Conflict) *kvpb.Response {
	response := r.refuse(q, kvpb.ErrorCode_LOCKED, "key %s is locked by transaction %x, and the "+
		"request's time ran out; it did not run", keys.Pretty(c.Key), c.Transaction)
	response.Error.Conflict = c
	return response
}

// Disconnected refuses a request whose client is no longer connected.
func (r *Refuser) Disconnected(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_LOCKED, "the request waited for a lock, and its client is not "+
		"connected any more; it did not run")
}

// HandsOver refuses a write while the leader's disk is full, and other replicas have space. A
// client that learns of a hand-over asks again until there is another leader.
func (r *Refuser) HandsOver(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_NOT_LEADER, "the disk of its leader is full, and it hands over "+
		"to a node with free disk space; try again")
}

// DiskFull refuses a write while no quorum of the replicas has space.
func (r *Refuser) DiskFull(q *kvpb.Request, descriptor *clusterpb.Partition) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_DISK_FULL,
		"%s: reads go on, and writes as soon as there is free disk space", r.whoIsFull(descriptor))
}

// QuotaExceeded refuses a write that would add to a keyspace which holds as much as its quota
// allows.
func (r *Refuser) QuotaExceeded(q *kvpb.Request, text string) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_QUOTA_EXCEEDED, "%s", text)
}

// whoIsFull names the nodes whose disks are full.
func (r *Refuser) whoIsFull(descriptor *clusterpb.Partition) string {
	var full []string
	for _, replica := range descriptor.GetReplicas() {
		node := keys.NodeID(replica.GetNode())
		own := keys.ReplicaID(replica.GetReplica()) == r.Self
		if own && r.Node.DiskFull() || !own && r.Node.WithoutRoom(node) {
			full = append(full, "node "+node.String())
		}
	}
	switch len(full) {
	case 0:
		return "no quorum of its replicas has free disk space"
	case 1:
		return "the disk of " + full[0] + " is full"
	}
	return "the disks of " + strings.Join(full, " and ") + " are full"
}

// UntrustedClock refuses a request that would get a timestamp from a clock that others must not
// rely on.
func (r *Refuser) UntrustedClock(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_CLOCK_SKEW, "this server's clock has just been set, or its "+
		"machine was suspended, and it has not been looked at since")
}

// UnbelievedClock refuses a request to a leadership that began while its node's clock was not
// believed.
func (r *Refuser) UnbelievedClock(q *kvpb.Request) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_CLOCK_SKEW, "the clock of its leader's node has not been "+
		"confirmed by those of the peers since that leader was elected; check the time synchronisation "+
		"if it lasts")
}

// SessionAhead refuses a session timestamp that is further ahead than any clock of the cluster.
func (r *Refuser) SessionAhead(q *kvpb.Request, session hlc.Timestamp) *kvpb.Response {
	return command.Refusing(r.refuse(q, kvpb.ErrorCode_CLOCK_SKEW,
		"the session's timestamp %s is too "+
			"far ahead of this server's clock; check the time synchronisation of the servers", session),
		session, hlc.Timestamp{})
}

// SessionTooOld refuses a write of a session that began below the garbage collection threshold.
func (r *Refuser) SessionTooOld(q *kvpb.Request, session, threshold hlc.Timestamp) *kvpb.Response {
	return command.Refusing(r.refuse(q, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		"the session's timestamp %s "+
			"is older than what is kept (since %s), so a retry could not be told from a first attempt; "+
			"begin a new session from `now`", session, threshold), session, threshold)
}
