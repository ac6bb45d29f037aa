package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
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

// noPermissions are those of a command that is open.
func noPermissions(_ Place, _ *kvpb.Request, needs []access.Permission) []access.Permission {
	return needs
}

func needKey(needs []access.Permission, keyspace uint64, right access.Right,
	key []byte) []access.Permission {
	return append(needs, access.Permission{Keyspace: keyspace, Start: key, Right: right})
}

func needKeys(needs []access.Permission, keyspace uint64, right access.Right,
	all [][]byte) []access.Permission {
	for _, key := range all {
		needs = needKey(needs, keyspace, right, key)
	}
	return needs
}

// needSpan is for the keys in [start, end); an empty end stands for that of the partition, and
// so may be as far as that of the keyspace: partitions merge.
func needSpan(needs []access.Permission, keyspace uint64, right access.Right,
	start, end []byte) []access.Permission {
	switch {
	case len(end) == 0:
		end = noEnd
	case bytes.Compare(start, end) >= 0:
		return needKey(needs, keyspace, right, start) // it holds no key, and is judged all the same
	}
	return append(needs, access.Permission{Keyspace: keyspace, Start: start, End: end,
		Right: right})
}

// needAll is for the whole keyspace.
func needAll(needs []access.Permission, keyspace uint64, right access.Right) []access.Permission {
	return append(needs, access.Permission{Keyspace: keyspace, End: noEnd, Right: right})
}

// needAnchor is for the anchor of a transaction, which is one of the keys that it writes or locks.
// Otherwise a client that may write somewhere could have records made in any keyspace.
func needAnchor(needs []access.Permission, of *kvpb.Transaction) []access.Permission {
	return needKey(needs, uint64(of.GetKeyspace()), access.Write, of.GetAnchor())
}

func needReads(needs []access.Permission, keyspace uint64,
	reads *kvpb.ReadSet) []access.Permission {
	needs = needKeys(needs, keyspace, access.Read, reads.GetKeys())
	for _, s := range reads.GetSpans() {
		needs = needSpan(needs, keyspace, access.Read, s.GetStart(), s.GetEnd())
	}
	return needs
}

// preparePermissions are Write for what is locked, and Read for what the answer tells of. To hold a
// span is to keep others from writing there.
func preparePermissions(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	c := q.GetPrepare()
	needs = needAnchor(needs, c.GetTransaction())
	for _, m := range c.GetMutations() {
		needs = needKey(needs, at.Keyspace, access.Write, m.GetKey())
		if c.GetReturnValues() || m.GetRead() {
			needs = needKey(needs, at.Keyspace, access.Read, m.GetKey())
		}
	}
	for _, s := range c.GetHoldSpans() {
		needs = needSpan(needs, at.Keyspace, access.Write, s.GetStart(), s.GetEnd())
	}
	return needReads(needs, at.Keyspace, c.GetOnePhase().GetReads())
}

// endPermissions are Write for the anchor. To end a transaction that is another client's needs
// Admin.
func endPermissions(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	c := q.GetEndTransaction()
	if c.GetRequested() {
		needs = needAll(needs, at.Keyspace, access.Admin)
	}
	return needAnchor(needs, c.GetTransaction())
}

// resolvePermissions are Write for all keys that may have the locks: ids of transactions are told
// to clients that they hold up, so to know one is no right to end its locks.
func resolvePermissions(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	if s := q.GetResolve().GetWithin(); s != nil {
		return needSpan(needs, at.Keyspace, access.Write, s.GetStart(), s.GetEnd())
	}
	return needAll(needs, at.Keyspace, access.Write)
}

// pushPermissions are Admin: to push is for servers, which are not asked.
func pushPermissions(at Place, _ *kvpb.Request, needs []access.Permission) []access.Permission {
	return needAll(needs, at.Keyspace, access.Admin)
}

func multiGetPermissions(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	for _, p := range q.GetMultiGet().GetPartitions() {
		needs = needKeys(needs, at.Finder.KeyspaceOf(p.GetPartition()), access.Read, p.GetKeys())
	}
	return needs
}

func mergeScanPermissions(at Place, q *kvpb.Request,
	needs []access.Permission) []access.Permission {
	c := q.GetMergeScan()
	last := uint64(0)
	for i, p := range c.GetPartitions() {
		// All are of one keyspace, or it is refused.
		keyspace := at.Finder.KeyspaceOf(p.GetPartition())
		if i == 0 || keyspace != last {
			needs = needSpan(needs, keyspace, access.Read, c.GetStart(), c.GetEnd())
		}
		last = keyspace
	}
	return needs
}

// loadPermissions are Admin of the keyspace, since a load comes before the writes of others as a
// whole, and Write.
func loadPermissions(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	c := q.GetLoad()
	needs = needAll(needs, at.Keyspace, access.Admin)
	return needSpan(needs, at.Keyspace, access.Write, c.GetFirst(), keys.Next(c.GetLast()))
}
