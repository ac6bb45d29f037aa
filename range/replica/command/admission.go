package command

import (
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// CheckAdmission says what is wrong with a read as one that a leader is to admit, or that a replica
// reads by an admission, which then says at what timestamp; nil if nothing is, or it is neither.
func (c *Command) CheckAdmission(q *kvpb.Request, asked *Reading) *Problem {
	by := q.GetReplicaRead().GetAdmission()
	switch {
	case !q.GetAdmit() && by == nil:
		return nil
	case !c.Admissible:
		return Invalid("a request of the kind %s cannot be admitted: only reads of keys and spans can",
			c.Name)
	case q.GetAdmit() && q.GetReplicaRead() != nil:
		return Invalid("a read is admitted by a leader, or answered by any replica, and not both")
	case len(asked.Context.GetTransaction()) > 0 || asked.Context.GetLeadership() != nil:
		return Invalid("a read that is admitted is of no transaction, and under no leadership; its " +
			"context names one")
	case by == nil:
		return nil
	}
	at := wire.FromTimestamp(by.At)
	if at.IsZero() {
		return Invalid("the admission of a read has no timestamp")
	}
	asked.At, asked.UncertainUntil, asked.Context = at, wire.FromTimestamp(by.UncertainUntil), nil
	return nil
}
