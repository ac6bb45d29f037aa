package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What a Prepare of two phases looks up of its keys before the locks are acquired. What it finds of
// locks is given to it as a value: the keys whose lock stays as it is.

// WritesVersion says that a mutation is a write, and so of a transaction that commits.
func WritesVersion(m *kvpb.Mutation) bool {
	return m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE
}

// PreparedAbove is what the prepared timestamp has to be above: ts, or more because of what is
// written. Or changed is a key that was written since the transaction has read it. kept are keys
// whose lock stays as it is; they are not compared.
func (e *Evaluation) PreparedAbove(c *kvpb.PrepareRequest, kept map[string]struct{},
	ts hlc.Timestamp) (above hlc.Timestamp, changed []byte, err error) {
	readAt := rpc.FromTimestamp(c.GetReadAt())
	for _, m := range c.GetMutations() {
		if m.Kind == kvpb.Mutation_UNLOCK {
			continue
		}
		prior, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return ts, nil, err
		}
		if _, late := kept[text(m.Key)]; m.Read && !late && prior.Found &&
			readAt.Less(prior.Timestamp) {
			return ts, m.Key, nil
		}
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return ts, nil, nil
}

// PreparedValues reads the keys as they are, and says what the prepared timestamp has to be above.
// If the values are more than an answer may have, there is a problem, and nothing else.
func (e *Evaluation) PreparedValues(mutations []*kvpb.Mutation, ts hlc.Timestamp) (
	values []*kvpb.GetResponse, above hlc.Timestamp, problem *Problem, err error) {
	size := 0
	for i, m := range mutations {
		prior, err := e.Prior(m.Key)
		if err != nil {
			return nil, ts, nil, err
		}
		if prior.Live() {
			size += len(prior.Value)
		}
		if size > MaxBatchBytes {
			return nil, ts, Invalid("a prepare returns values of at most %d bytes, the first %d "+
				"of its %d keys have more; lock fewer keys at a time",
				MaxBatchBytes, i+1, len(mutations)), nil
		}
		e.HoldSeen(&prior)
		value := &kvpb.GetResponse{}
		if prior.Live() {
			value.Found, value.Value, value.Version = true, bytes.Clone(prior.Value),
				rpc.ToTimestamp(prior.Timestamp)
		}
		values = append(values, value)
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return values, ts, nil, nil
}
