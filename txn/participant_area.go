package txn

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

// area is a part of a keyspace: a span of user keys, of one hash number if the keyspace is hashed.
type area struct {
	keyspace keys.KeyspaceID
	// whole is set if the area is the whole keyspace. The other fields are zero then.
	whole bool
	hash  uint32
	span  keys.Span
}

// area returns the area of the participant's keys.
func (p *Participant) area() area {
	if p.Whole() {
		return area{keyspace: p.Keyspace, whole: true}
	}
	return area{keyspace: p.Keyspace, hash: p.Hash, span: p.Span()}
}

// areaOf returns the area that a partition holds.
func areaOf(p *route.Partition) area {
	return area{keyspace: p.Keyspace, hash: p.Hash, span: p.Span}
}

// partitions finds the partitions that hold keys of an area. covered is set if they hold the whole
// area, so that the table has no hole there.
func partitions(table *route.Table, a area) (over []*route.Partition, covered bool) {
	k := table.KeyspaceByID(a.keyspace)
	switch {
	case k == nil:
		return nil, false // the keyspace may be younger than the table
	case a.whole:
		return k.Partitions(), k.Complete()
	}
	for at := a.span.Start; ; {
		p := holder(k, a.hash, at)
		if p == nil {
			return over, false
		}
		over = append(over, p)
		end := p.Span.End
		if len(end) == 0 || len(a.span.End) > 0 && bytes.Compare(end, a.span.End) >= 0 {
			return over, true
		}
		at = end
	}
}

// holder returns the partition that holds a key; nil if the table has a hole there.
func holder(k *route.Keyspace, hash uint32, key []byte) *route.Partition {
	if k.Hashed() {
		return k.ByHash(hash, key)
	}
	return k.ByKey(key)
}

// callTo returns a call to the partition that holds the first key of p.
func callTo(p *route.Partition) *route.Call {
	call := &route.Call{Keyspace: p.Keyspace, Key: p.Span.Start}
	if p.Descriptor.GetPrefixLength() == keys.HashPrefixLength {
		call.By, call.Hash = route.ByHash, p.Hash
	}
	return call
}
