package keys

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition's descriptor is a *clusterpb.Partition everywhere, and never changed once it is
// published. This file computes keys and spans from descriptors.

// PartitionSpan is the partition's span of internal keys. It aliases the descriptor.
func PartitionSpan(p *clusterpb.Partition) Span { return Span{Start: p.Start, End: p.End} }

// PartitionPrefix returns the common prefix of the partition's internal keys: the keyspace id, and
// in a hash keyspace the hash number. It aliases the descriptor.
func PartitionPrefix(p *clusterpb.Partition) []byte {
	n := int(p.PrefixLength)
	return p.Start[:n:n]
}

// PartitionUserSpan is the partition's span in user keys. It aliases the descriptor.
func PartitionUserSpan(p *clusterpb.Partition) Span {
	prefix := PartitionPrefix(p)
	span := Span{Start: p.Start[len(prefix):]}
	// An end beyond the prefix means that the partition reaches to the end of its keyspace, or hash
	// partition.
	if bytes.HasPrefix(p.End, prefix) {
		span.End = p.End[len(prefix):]
	}
	return span
}

// PartitionContains reports whether a user key lies in the partition's span. For a hash keyspace it
// does not check the key's hash number.
func PartitionContains(p *clusterpb.Partition, userKey []byte) bool {
	return PartitionUserSpan(p).Contains(userKey)
}

// AppendInternalKey appends the internal key of a user key of the partition.
func AppendInternalKey(dst []byte, p *clusterpb.Partition, userKey []byte) []byte {
	return append(append(dst, PartitionPrefix(p)...), userKey...)
}

// InternalKey is the internal key of a user key of the partition.
func InternalKey(p *clusterpb.Partition, userKey []byte) []byte {
	return AppendInternalKey(make([]byte, 0, int(p.PrefixLength)+len(userKey)), p, userKey)
}

// UserKey is the user key within an internal key of the partition. It aliases the argument.
func UserKey(p *clusterpb.Partition, internalKey []byte) []byte {
	return internalKey[p.PrefixLength:]
}

// InternalSpan returns the part of the partition that a span of user keys covers: where the user
// span reaches beyond the partition, the result ends with the partition. The result may be Empty.
func InternalSpan(p *clusterpb.Partition, user Span) Span {
	span := Span{Start: InternalKey(p, user.Start)}
	if len(user.End) > 0 {
		span.End = InternalKey(p, user.End)
	}
	return span.Intersect(PartitionSpan(p))
}

// ValidatePartition returns an error unless a descriptor from disk or network is valid for the
// functions of this file.
func ValidatePartition(p *clusterpb.Partition) error {
	switch {
	case p == nil || p.Id == 0:
		return fmt.Errorf("partition descriptor without an id")
	case p.PrefixLength != KeyspacePrefixLength && p.PrefixLength != HashPrefixLength:
		return fmt.Errorf("descriptor of partition %s: prefix of %d bytes, want %d or %d",
			PartitionID(p.Id), p.PrefixLength, KeyspacePrefixLength, HashPrefixLength)
	case len(p.Start) < int(p.PrefixLength):
		return fmt.Errorf("descriptor of partition %s: start %s is shorter than its prefix of %d bytes",
			PartitionID(p.Id), Pretty(p.Start), p.PrefixLength)
	}
	span, whole := PartitionSpan(p), PrefixSpan(PartitionPrefix(p))
	switch {
	case span.Empty():
		return fmt.Errorf("descriptor of partition %s: span %s is empty", PartitionID(p.Id), span)
	case !whole.ContainsSpan(span):
		return fmt.Errorf("descriptor of partition %s: span %s leaves its prefix",
			PartitionID(p.Id), span)
	case !bytes.HasPrefix(p.Start, KeyspacePrefix(KeyspaceID(p.Keyspace))):
		return fmt.Errorf("descriptor of partition %s: start %s lies outside keyspace %s",
			PartitionID(p.Id), Pretty(p.Start), KeyspaceID(p.Keyspace))
	case p.PrefixLength == HashPrefixLength && (p.Hash >= MaxHashPartitions ||
		!bytes.HasPrefix(p.Start, HashPrefix(KeyspaceID(p.Keyspace), uint16(p.Hash)))):
		return fmt.Errorf("descriptor of partition %s: start %s lies outside hash partition %d",
			PartitionID(p.Id), Pretty(p.Start), p.Hash)
	}
	return nil
}

// Subsumes reports whether partition p, given by any of its descriptors, was merged into the
// partition of d or into an ancestor of it.
//
// A partition's start key passes to another partition only by a merge: a split leaves the start key
// to the left part, which keeps the id. And the generation of the partition that holds a key only
// rises. So a partition that holds the start key of p with a higher generation has subsumed p.
func Subsumes(d, p *clusterpb.Partition) bool {
	return d.GetId() != p.GetId() && d.GetGeneration() > p.GetGeneration() &&
		bytes.Compare(d.GetStart(), p.GetStart()) <= 0 && bytes.Compare(p.GetStart(), d.GetEnd()) < 0
}

// CompareEpochs orders descriptors of one partition: by generation, then by membership.
func CompareEpochs(a, b *clusterpb.Partition) int {
	return cmp.Or(cmp.Compare(a.GetGeneration(), b.GetGeneration()),
		cmp.Compare(a.GetMembership(), b.GetMembership()))
}
