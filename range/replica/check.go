package replica

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What can be said of a request by looking at it and the descriptor alone.

// maxBatchOperations bounds a WriteBatch, as it bounds a transaction (DESIGN section 14).
const (
	maxBatchOperations = 100_000
	maxBatchBytes      = 64 << 20
)

func (r *Replica) checkKey(key []byte) *problem {
	if err := keys.ValidateUserKey(key); err != nil {
		return invalid("%v", err)
	}
	if d := r.Descriptor(); !keys.PartitionContains(d, key) {
		return &problem{kvpb.ErrorCode_KEY_OUT_OF_SPAN, "key " + keys.Pretty(key) + " is outside partition " + r.id.String() +
			", which holds " + keys.PartitionUserSpan(d).String()}
	}
	return nil
}

func (r *Replica) checkKeyValue(key, value []byte) *problem {
	if p := r.checkKey(key); p != nil {
		return p
	}
	if err := keys.ValidateValue(value); err != nil {
		return invalid("key %s: %v", keys.Pretty(key), err)
	}
	return nil
}

func (r *Replica) checkCompareAndSwap(c *kvpb.CompareAndSwapRequest) *problem {
	if p := r.checkKeyValue(c.GetKey(), c.GetNewValue()); p != nil {
		return p
	}
	switch e := c.GetExpected().(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		if !e.Absent {
			return invalid("key %s: `absent` can only be expected to be true", keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Version:
		if e.Version == nil {
			return invalid("key %s: the expected version is empty", keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Value:
	default:
		return invalid("key %s: a compare-and-swap needs an expectation: absent, a value, or a version", keys.Pretty(c.GetKey()))
	}
	if c.GetDelete() && len(c.GetNewValue()) > 0 {
		return invalid("key %s: a compare-and-swap either deletes or writes a new value, not both", keys.Pretty(c.GetKey()))
	}
	return nil
}

func (r *Replica) checkWriteBatch(b *kvpb.WriteBatchRequest) (size int, p *problem) {
	operations := b.GetOperations()
	switch {
	case len(operations) == 0:
		return 0, invalid("an atomic batch needs at least one operation")
	case len(operations) > maxBatchOperations:
		return 0, invalid("an atomic batch has at most %d operations, this one has %d", maxBatchOperations, len(operations))
	}
	seen := make(map[string]struct{}, len(operations))
	for _, o := range operations {
		if p := r.checkKeyValue(o.GetKey(), o.GetValue()); p != nil {
			return 0, p
		}
		if o.GetDelete() && len(o.GetValue()) > 0 {
			return 0, invalid("key %s: an operation either deletes or writes a value, not both", keys.Pretty(o.GetKey()))
		}
		if _, twice := seen[text(o.GetKey())]; twice {
			return 0, invalid("key %s appears twice in an atomic batch", keys.Pretty(o.GetKey()))
		}
		seen[text(o.GetKey())] = struct{}{}
		size += len(o.GetKey()) + len(o.GetValue()) + writeOverhead
	}
	if size > maxBatchBytes {
		return 0, invalid("an atomic batch has at most %d bytes, this one has %d", maxBatchBytes, size)
	}
	return size, nil
}

// checkSpan accepts every span that has something in common with the partition: the rest of it is elsewhere. Bounds are not
// keys that exist, so they may be empty, and a little longer than a key.
func (r *Replica) checkSpan(start, end []byte) *problem {
	for _, bound := range [...][]byte{start, end} {
		if len(bound) > keys.MaxKeySize+1 {
			return invalid("%v: the bound %s of a span; a key has at most %d bytes", keys.ErrKeyTooLarge, keys.Pretty(bound), keys.MaxKeySize)
		}
	}
	if len(end) > 0 && bytes.Compare(start, end) > 0 {
		return invalid("the span's start %s is above its end %s", keys.Pretty(start), keys.Pretty(end))
	}
	user, own := keys.Span{Start: start, End: end}, keys.PartitionUserSpan(r.Descriptor())
	if !user.Empty() && !user.Overlaps(own) {
		return &problem{kvpb.ErrorCode_KEY_OUT_OF_SPAN, "the span " + user.String() + " is outside partition " + r.id.String() +
			", which holds " + own.String()}
	}
	return nil
}

// checkAhead refuses a timestamp from so far ahead that no clock of the cluster can have given it, and merges it otherwise.
func (r *Replica) checkAhead(t, now hlc.Timestamp) bool {
	return t.LessEq(now) || r.node.Clock.Update(t) == nil
}

// internalSpan is the part of a span of user keys that lies in the partition, in internal keys.
func internalSpan(d *clusterpb.Partition, start, end []byte) keys.Span {
	return keys.InternalSpan(d, keys.Span{Start: start, End: end})
}
