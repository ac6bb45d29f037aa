package request

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The rights that clients need. A right is needed in the keyspace to which the partition really
// belongs, whatever the client says. Only for the anchor of a transaction it is the keyspace that
// the request names.

// Place says where a request goes.
type Place struct {
	// Keyspace is the keyspace of the request's partition; 0 if the node answers the request.
	Keyspace uint64
	// Finder finds the keyspaces of other partitions.
	Finder Finder
}

// Finder knows which keyspaces partitions belong to.
type Finder interface {
	// KeyspaceOf returns 0 for an unknown partition.
	KeyspaceOf(partition uint64) uint64
}

// noEnd is the end of a span that reaches to the end of the keyspace.
var noEnd = []byte{}

// NoNeeds returns the rights of a command that is open: none.
func NoNeeds(_ Place, _ *kvpb.Request,
	needs []access.Permission) []access.Permission {
	return needs
}

func NeedKey(needs []access.Permission, keyspace uint64, right access.Right,
	key []byte) []access.Permission {
	return append(needs, access.Permission{Keyspace: keyspace, Start: key, Right: right})
}

func NeedKeys(needs []access.Permission, keyspace uint64, right access.Right,
	all [][]byte) []access.Permission {
	for _, key := range all {
		needs = NeedKey(needs, keyspace, right, key)
	}
	return needs
}

// NeedSpan adds a right for the keys in [start, end). An empty end stands for the end of the
// partition, and therefore for the end of the keyspace, because partitions may merge.
func NeedSpan(needs []access.Permission, keyspace uint64, right access.Right,
	start, end []byte) []access.Permission {
	switch {
	case len(end) == 0:
		end = noEnd
	case bytes.Compare(start, end) >= 0:
		return NeedKey(needs, keyspace, right, start) // an empty span is checked too
	}
	return append(needs, access.Permission{Keyspace: keyspace, Start: start, End: end, Right: right})
}

// NeedAll adds a right for the whole keyspace.
func NeedAll(needs []access.Permission, keyspace uint64, right access.Right) []access.Permission {
	return append(needs, access.Permission{Keyspace: keyspace, End: noEnd, Right: right})
}

// NeedAnchor adds a right for the anchor of a transaction, which is one of the keys that the
// transaction writes or locks. Otherwise a client that may write somewhere could create records in
// any keyspace.
func NeedAnchor(needs []access.Permission, of *kvpb.Transaction) []access.Permission {
	return NeedKey(needs, uint64(of.GetKeyspace()), access.Write, of.GetAnchor())
}

func NeedReads(needs []access.Permission, keyspace uint64,
	reads *kvpb.ReadSet) []access.Permission {
	needs = NeedKeys(needs, keyspace, access.Read, reads.GetKeys())
	for _, s := range reads.GetSpans() {
		needs = NeedSpan(needs, keyspace, access.Read, s.GetStart(), s.GetEnd())
	}
	return needs
}
