package replica

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What becomes of a command of this package's own (CollectGarbage, ChangeDescriptor) that is not applied.
var (
	errNotLeader      = errors.New("this replica does not lead the partition, or not yet; the command had no effect")
	errOutcomeUnknown = errors.New("leadership was lost; the command may or may not have taken effect")
	errOverloaded     = errors.New("the partition's queue is full; the command had no effect")
)

// newError is an error response to a request.
func newError(request *kvpb.Request, code kvpb.ErrorCode, format string, args ...any) *kvpb.Response {
	return &kvpb.Response{Id: request.GetId(), Error: &kvpb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// leaderHint is who leads, as far as this replica knows; nil if it does not.
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
	text := "partition %s: nobody is known to lead it at present; try again"
	if hint != nil {
		text = "partition %s: it is led by another replica, or at another term, than the request was sent to; see the leader given"
	}
	response := newError(request, kvpb.ErrorCode_NOT_LEADER, text, r.id)
	response.Error.Leader = hint
	return response
}

// unknownOutcome is for a write that may still take effect.
func (r *Replica) unknownOutcome(request *kvpb.Request) *kvpb.Response {
	response := newError(request, kvpb.ErrorCode_OUTCOME_UNKNOWN,
		"partition %s: leadership was lost while the write was being replicated; it may or may not have taken effect", r.id)
	response.Error.Leader = r.leaderHint()
	return response
}

// staleEpoch is for a request that was routed by another descriptor.
func (r *Replica) staleEpoch(request *kvpb.Request, descriptor *clusterpb.Partition) *kvpb.Response {
	response := newError(request, kvpb.ErrorCode_STALE_EPOCH,
		"partition %s: the request was routed by generation %d, it is at %d", r.id, request.GetGeneration(), descriptor.GetGeneration())
	response.Error.Partitions = []*clusterpb.Partition{descriptor}
	response.Error.Leader = r.leaderHint()
	return response
}

func (r *Replica) overloaded(request *kvpb.Request, what string) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_OVERLOADED, "partition %s: too many %s; try again more slowly", r.id, what)
}

func (r *Replica) deadlineExceeded(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_DEADLINE_EXCEEDED, "partition %s: the request waited longer than its timeout, and did not run", r.id)
}

func (r *Replica) diskFull(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_DISK_FULL, "partition %s: the disk of its leader is full; reads go on, writes when there is room", r.id)
}

// goneError is for a replica that is closed: its sender shall look elsewhere.
func (r *Replica) goneError(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_NOT_LEADER, "partition %s: this replica is closed", r.id)
}

func (r *Replica) failedError(request *kvpb.Request) *kvpb.Response {
	return newError(request, kvpb.ErrorCode_NODE_UNHEALTHY, "partition %s: this replica has failed; see the server's log", r.id)
}

// readError is for a failed read of the engine.
func (r *Replica) readError(request *kvpb.Request, err error) *kvpb.Response {
	code := kvpb.ErrorCode_NODE_UNHEALTHY
	if engine.IsCorruption(err) || errors.Is(err, mvcc.ErrCorrupt) {
		code = kvpb.ErrorCode_CORRUPTION
	}
	r.node.Logger.Error("reading the state failed", "partition", r.id, "error", err)
	return newError(request, code, "partition %s: reading its state failed: %v", r.id, err)
}

// problem is what is wrong with a request by itself.
type problem struct {
	code kvpb.ErrorCode
	text string
}

func invalid(format string, args ...any) *problem {
	return &problem{kvpb.ErrorCode_INVALID_ARGUMENT, fmt.Sprintf(format, args...)}
}

func (p *problem) response(r *Replica, request *kvpb.Request) *kvpb.Response {
	response := newError(request, p.code, "%s", p.text)
	if p.code == kvpb.ErrorCode_KEY_OUT_OF_SPAN {
		response.Error.Partitions = []*clusterpb.Partition{r.Descriptor()}
		response.Error.Leader = r.leaderHint()
	}
	return response
}
