package request

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What rights clients need. A need is of the keyspace that a partition really belongs to, whatever
// the client says; of another one only where a request names that itself: the anchor of a
// transaction.

// Place is where a request goes.
type Place struct {
	// Keyspace is that of the request's partition; 0 if the node answers it.
	Keyspace uint64
	// Finder finds those of others.
	Finder Finder
}

// Finder knows which keyspaces partitions belong to.
type Finder interface {
	// KeyspaceOf returns 0 for a partition that is not known.
	KeyspaceOf(partition uint64) uint64
}

// noEnd is the end of a span that reaches to the end of the keyspace.
var noEnd = []byte{}

// noNeeds are those of a command that is open.
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

// needSpan is for the keys in [start, end); an empty end stands for that of the partition, and
// so may be as far as that of the keyspace: partitions merge.
func NeedSpan(needs []access.Permission, keyspace uint64, right access.Right,
	start, end []byte) []access.Permission {
	switch {
	case len(end) == 0:
		end = noEnd
	case bytes.Compare(start, end) >= 0:
		return NeedKey(needs, keyspace, right, start) // it holds no key, and is judged all the same
	}
	return append(needs, access.Permission{Keyspace: keyspace, Start: start, End: end, Right: right})
}

// needAll is for the whole keyspace.
func NeedAll(needs []access.Permission, keyspace uint64, right access.Right) []access.Permission {
	return append(needs, access.Permission{Keyspace: keyspace, End: noEnd, Right: right})
}

// needAnchor is for the anchor of a transaction, which is one of the keys that it writes or locks.
// Otherwise a client that may write somewhere could have records made in any keyspace.
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
