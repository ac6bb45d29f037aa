package replica

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What becomes of a command of this package's own (own_commands.go) that is not
// applied.
var (
	errNotLeader = errors.New("this replica does not lead the partition, or not yet; the " +
		"command had no effect")
	errOutcomeUnknown = errors.New("leadership was lost; the command may or may not have " +
		"taken effect")
	errClockUnbelieved = errors.New("the clock of this node has not been confirmed by those of its " +
		"peers; the command had no effect")
	errOverloaded = errors.New("the partition's queue is full; the command had no effect")
)

// newError is an error response to a request.
func newError(request *kvpb.Request, code kvpb.ErrorCode, format string,
	args ...any) *kvpb.Response {
	return &kvpb.Response{Id: request.GetId(),
		Error: &kvpb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// leaderHint is the replica that leads, as far as this replica knows; nil if it does not.
func (r *Replica) leaderHint() *clusterpb.Leader {
	leader, term := r.group.Leader()
	if leader == 0 {
		return nil
	}
	for _, replica := range r.Descriptor().GetReplicas() {
		if keys.ReplicaID(replica.GetReplica()) == leader {
			return &clusterpb.Leader{Partition: uint64(r.id), Node: replica.GetNode(), Term: term}
		}
	}
	return nil
}

// notLeader is for a request that did not run and never will.
func (r *Replica) notLeader(request *kvpb.Request) *kvpb.Response {
	hint := r.leaderHint()
	if hint == nil {
		if lost := r.lostQuorum(); lost != "" {
			return newError(request, kvpb.ErrorCode_NO_QUORUM, "partition %s has no quorum: %s",
				r.id, lost)
		}
		return newError(request, kvpb.ErrorCode_NOT_LEADER,
			"partition %s: no leader of it is known at present; try again", r.id)
	}
	response := newError(request, kvpb.ErrorCode_NOT_LEADER,
		"partition %s: node %s leads it, at term %d; the request went to another replica, or names "+
			"another term", r.id,
		keys.NodeID(hint.Node), hint.Term)
	response.Error.Leader = hint
	return response
}

// lostQuorum says in words which nodes do not answer, if so many do not that no replica can lead;
// otherwise it is empty.
func (r *Replica) lostQuorum() string {
	if r.node.Silent == nil {
		return ""
	}
	var voters int
	var silent []string
	is := map[keys.ReplicaID]bool{}
	for _, replica := range r.Descriptor().GetReplicas() {
		if replica.GetRole() == clusterpb.ReplicaRole_LEARNER {
			continue
		}
		voters++
		if node := keys.NodeID(replica.GetNode()); r.node.Silent(node) {
			silent = append(silent, "node "+node.String())
			is[keys.ReplicaID(replica.GetReplica())] = true
		}
	}
	members := r.Configuration()
	if members.Empty() || members.Quorum(func(id keys.ReplicaID) bool { return !is[id] }) {
		return ""
	}
	return fmt.Sprintf("%d of its %d replicas, on %s, are silent", len(silent), voters,
		strings.Join(silent, " and "))
}

// unknownOutcome is for a write that may still take effect.
func (r *Replica) unknownOutcome(request *kvpb.Request) *kvpb.Response {
	text := "leadership was lost while the write was being replicated"
	if lost := r.lostQuorum(); lost != "" {
		text = "the write could not be replicated to a quorum: " + lost
	}
	response := newError(request, kvpb.ErrorCode_OUTCOME_UNKNOWN,
		"partition %s: %s; it may or may not have taken effect", r.id, text)
	response.Error.Leader = r.leaderHint()
	return response
}

// unconfirmed is for a read whose leader could not have a majority confirm it. That is the fault of
// nodes that are down only if some are: the leader may have lost its lease to a clock, and its
// confirmation to a slow network.
func (r *Replica) unconfirmed(request *kvpb.Request, err error) *kvpb.Response {
	if lost := r.lostQuorum(); lost != "" {
		return newError(request, kvpb.ErrorCode_NO_QUORUM,
			"partition %s has no quorum to confirm its leader: %s", r.id, lost)
	}
	if _, sure := r.node.Clock.Reading(); !sure {
		return newError(request, kvpb.ErrorCode_CLOCK_SKEW,
			"partition %s: the clock of its leader has just been set, or its machine was "+
				"suspended, and a majority of its replicas has not confirmed yet that it still leads", r.id)
	}
	return newError(request, kvpb.ErrorCode_NODE_UNHEALTHY,
		"partition %s: a majority of its replicas did not confirm its leader in time, "+
			"although none of them is known to be down (%s); try again", r.id, err)
}

func (r *Replica) overloaded(request *kvpb.Request, what string) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_OVERLOADED,
		"partition %s: too many %s; try again more slowly", r.id, what)
}

func (r *Replica) deadlineExceeded(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_DEADLINE_EXCEEDED,
		"partition %s: the request waited longer than its timeout, and did not run", r.id)
}

func (r *Replica) logBehind(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_OVERLOADED,
		"partition %s: too much waits for this server's raft log; try again more slowly", r.id)
}

// goneError is for a replica that is closed: its sender shall look elsewhere.
func (r *Replica) goneError(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_NOT_LEADER, "partition %s: this replica is closed", r.id)
}

func (r *Replica) failedError(request *kvpb.Request) *kvpb.Response {
	r.mu.Lock()
	err := r.mu.failed
	r.mu.Unlock()
	code := kvpb.ErrorCode_NODE_UNHEALTHY
	if storage.IsDamage(err) {
		code = kvpb.ErrorCode_REPLICA_DAMAGED
	}
	return newError(request, code, "%s", r.about("this replica has failed", err))
}

// about says what an error of the engine did to this partition.
func (r *Replica) about(what string, err error) string {
	at := fmt.Sprintf("partition %s: ", r.id)
	return at + what + ": " + strings.TrimPrefix(engine.Explain(err), at)
}

// readError is for a failed read of the engine.
func (r *Replica) readError(request *kvpb.Request, err error) *kvpb.Response {
	code := kvpb.ErrorCode_NODE_UNHEALTHY
	if storage.IsDamage(err) {
		code = kvpb.ErrorCode_CORRUPTION
	}
	r.node.Logger.Error("reading the state failed", "partition", r.id, "error", err)
	return newError(request, code, "%s", r.about("reading its state failed", err))
}

// leadershipError says that what was read under volatile locks may never have been there.
func (r *Replica) leadershipError(q *kvpb.Request, reads *kvpb.ReadSet) *kvpb.Response {
	r.Conflicts()
	return command.LeaderChanged(r.Descriptor(), q, reads)
}

// Conflicts counts a conflict of transactions.
func (r *Replica) Conflicts() { r.node.Metrics.conflicts.Inc() }
