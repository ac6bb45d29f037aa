package gc

import (
	"bytes"
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/txn"
)

// remoteChunk bounds the transactions that are asked about at once.
const remoteChunk = 2000

// ResolveRemote resolves the locks that transactions committed in this partition may have in other
// keyspaces, as far as this replica knows of them. It returns the number of transactions for which
// that failed. It is called for a replica that was closed and is about to be destroyed with its
// keyspace, and the decisions with it. COMMITTED is a fact, whichever node leads. It may be called
// again. The state database is open.
func (g *Collector) ResolveRemote(ctx context.Context) (left int, err error) {
	span := keys.AnchorSpan(keys.PartitionSpan(g.Replica.Descriptor()))
	for more := true; more; {
		more = false
		var chunk []txn.Committed
		err := eachAnchored(g.State, span,
			func(_ int, key []byte, of txn.Anchored, id txn.ID, value []byte) (bool, error) {
				if of != txn.AnchoredRecord {
					return true, nil
				}
				if len(chunk) == remoteChunk {
					span.Start, more = bytes.Clone(key), true
					return false, nil
				}
				record, err := txn.DecodeRecord(value)
				if err != nil {
					return false, err
				}
				others := g.elsewhere(record.Participants)
				switch {
				case !record.MayHaveLocks() || len(others) == 0:
				case record.CommitWait && !g.Replica.Passed(record.Timestamp):
					left++
				default:
					c, err := committed(g.Replica.Descriptor(), key, id, &record)
					if err != nil {
						return false, err
					}
					c.Participants = others
					chunk = append(chunk, c)
				}
				return true, ctx.Err()
			})
		if err != nil {
			return left, err
		}
		if len(chunk) == 0 {
			continue
		}
		if g.Resolver == nil {
			left += len(chunk)
			continue
		}
		for _, settled := range g.Resolver.Resolve(ctx, chunk) {
			if !settled {
				left++
			}
		}
	}
	return left, nil
}

// elsewhere returns the participants that are not in the partition's keyspace.
func (g *Collector) elsewhere(all []txn.Participant) []txn.Participant {
	own := keys.KeyspaceID(g.Replica.Descriptor().GetKeyspace())
	return slices.DeleteFunc(all, func(p txn.Participant) bool { return p.Keyspace == own })
}
