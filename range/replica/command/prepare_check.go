package command

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// prepareFootprint covers the written keys, and those read in the same step.
func prepareFootprint(q *kvpb.Request) (f request.Footprint) {
	c := q.GetPrepare()
	reads := c.GetOnePhase().GetReads()
	f.Many = make([][]byte, 0, len(c.Mutations)+len(reads.GetKeys()))
	for _, m := range c.Mutations {
		f.Many = append(f.Many, m.GetKey())
	}
	f.Many = append(f.Many, reads.GetKeys()...)
	f.Spans = append(append(f.Spans, reads.GetSpans()...), c.GetHoldSpans()...)
	return f
}

func checkPrepare(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *request.Problem) {
	c := q.GetPrepare()
	of, err := txn.ParseInfo(c.GetTransaction())
	if err != nil {
		return w, request.Invalid("prepare: %v", err)
	}
	if p := checkNamed(of); p != nil {
		return w, p
	}
	w.Transaction = &Transaction{Info: of}
	if p := checkVolatile(c); p != nil {
		return w, p
	}
	if p := checkHoldSpans(d, c); p != nil {
		return w, p
	}
	for _, s := range c.GetHoldSpans() {
		w.Size += len(s.Start) + len(s.End) + request.LockOverhead
	}
	if p := checkReadMutations(c); p != nil {
		return w, p
	}
	if n := len(c.GetMutations()); n > request.MaxBatchOperations {
		return w, request.Invalid("a prepare has at most %d mutations, this one has %d",
			request.MaxBatchOperations, n)
	}
	seen := make(map[string]struct{}, len(c.GetMutations()))
	written := 0
	for _, m := range c.GetMutations() {
		if p := checkMutation(d, m, c); p != nil {
			return w, p
		}
		if _, twice := seen[request.Text(m.GetKey())]; twice {
			return w, request.Invalid("key %s appears twice in a prepare", keys.Pretty(m.GetKey()))
		}
		seen[request.Text(m.GetKey())] = struct{}{}
		written += len(m.GetKey()) + len(m.GetValue())
		w.Size += len(m.GetKey()) + len(m.GetValue()) + len(of.Anchor) + request.LockOverhead
	}
	if c.GetOnePhase() != nil {
		size, p := checkReadSet(d, c.GetOnePhase().GetReads())
		if p == nil {
			p = checkAnchor(d, of)
		}
		if p != nil {
			return w, p
		}
		w.Size += size
	}
	switch {
	case written > request.MaxBatchBytes:
		return w, request.Invalid("a prepare has at most %d bytes of keys and values, this one has %d",
			request.MaxBatchBytes, written)
	case w.Size > request.MaxEntryBytes:
		return w,
			request.Invalid("a prepare has at most %d bytes with its locks, each of which names the "+
				"transaction's first key, and with what it has read; this one has %d",
				request.MaxEntryBytes, w.Size)
	}
	return w, nil
}

// checkNamed checks that a transaction names the place of its record. No keyspace has the id 0. A
// resolution with keyspace 0 applies to any transaction with that id, so no transaction may have
// locks with it.
func checkNamed(of txn.Info) *request.Problem {
	if of.Keyspace == 0 {
		return request.Invalid(
			"prepare: transaction %s, whose anchor is key %s, does not say in which "+
				"keyspace that lies: name the keyspace of the first key that it writes", of.ID,
			keys.Pretty(of.Anchor))
	}
	return nil
}

func checkMutation(d *clusterpb.Partition, m *kvpb.Mutation,
	c *kvpb.PrepareRequest) *request.Problem {
	if p := request.CheckKeyValue(d, m.GetKey(), m.GetValue()); p != nil {
		return p
	}
	if p := request.CheckTTL(m.GetKey(), m.GetTtl(), m.GetKind() != kvpb.Mutation_PUT); p != nil {
		return p
	}
	switch m.GetKind() {
	case kvpb.Mutation_PUT:
	case kvpb.Mutation_DELETE, kvpb.Mutation_LOCK, kvpb.Mutation_UNLOCK:
		if len(m.GetValue()) > 0 {
			return request.Invalid("key %s: a %s has no value", keys.Pretty(m.GetKey()), m.GetKind())
		}
	default:
		return request.Invalid("key %s: unknown kind of mutation %d", keys.Pretty(m.GetKey()),
			m.GetKind())
	}
	if c.GetReturnValues() && m.GetKind() != kvpb.Mutation_LOCK {
		return request.Invalid("key %s: values are returned with LOCK mutations only",
			keys.Pretty(m.GetKey()))
	}
	return nil
}

// checkVolatile validates a Prepare of volatile locks on its own.
func checkVolatile(c *kvpb.PrepareRequest) *request.Problem {
	if c.GetVolatile() && (!c.GetReturnValues() || c.GetOnePhase() != nil) {
		return request.Invalid(
			"volatile locks are acquired by reads: with values, and not in one phase")
	}
	return nil
}

// checkHoldSpans validates the spans that a Prepare is to lock.
func checkHoldSpans(d *clusterpb.Partition, c *kvpb.PrepareRequest) *request.Problem {
	switch n := len(c.GetHoldSpans()); {
	case n == 0:
		return nil
	case n > request.MaxHoldSpans:
		return request.Invalid("a prepare holds at most %d spans, this one is to hold %d",
			request.MaxHoldSpans, n)
	case !c.GetVolatile() || len(c.GetMutations()) > 0:
		return request.Invalid(
			"spans are held by volatile locks, without mutations in the same prepare")
	}
	for _, s := range c.GetHoldSpans() {
		if p := request.CheckSpan(d, s.GetStart(), s.GetEnd()); p != nil {
			return p
		}
		if span := (keys.Span{Start: s.GetStart(), End: s.GetEnd()}); span.Empty() {
			return request.Invalid("the span %s that is to be held is empty", span)
		}
	}
	return nil
}

// checkReadMutations validates the reads in a Prepare on their own.
func checkReadMutations(c *kvpb.PrepareRequest) *request.Problem {
	at, l := wire.FromTimestamp(c.GetReadAt()), c.GetLeadership()
	if l != nil && (at.IsZero() || l.Term == 0) {
		return request.Invalid(
			"a prepare names a leadership without a term, or does not say when its " +
				"keys were read")
	}
	if !at.IsZero() && (c.GetOnePhase() != nil || c.GetReturnValues()) {
		return request.Invalid(
			"a prepare that compares its keys with what was read has two phases, and " +
				"returns no values")
	}
	for _, m := range c.GetMutations() {
		switch {
		case !m.GetRead():
		case m.Kind != kvpb.Mutation_PUT && m.Kind != kvpb.Mutation_DELETE:
			return request.Invalid(
				"key %s: only a PUT or a DELETE says that its key was read, not a %s",
				keys.Pretty(m.Key), m.Kind)
		case at.IsZero():
			return request.Invalid("key %s: it is not said when it was read", keys.Pretty(m.Key))
		}
	}
	return nil
}

// checkAnchor checks that this partition can coordinate a transaction. (In a hash keyspace it does
// not check the hash.)
func checkAnchor(d *clusterpb.Partition, of txn.Info) *request.Problem {
	if own := keys.KeyspaceID(d.GetKeyspace()); of.Keyspace != own {
		return request.Invalid(
			"transaction %s is anchored in keyspace %s, partition %s is of keyspace %s",
			of.ID, of.Keyspace, keys.PartitionID(d.GetId()), own)
	}
	return request.CheckKey(d, of.Anchor)
}

// prepareNeeds are Write for locked keys, and Read for keys that the answer reveals. Locking a span
// keeps others from writing there, and needs Write.
func prepareNeeds(at request.Place, q *kvpb.Request,
	needs []access.Permission) []access.Permission {
	c := q.GetPrepare()
	needs = request.NeedAnchor(needs, c.GetTransaction())
	for _, m := range c.GetMutations() {
		needs = request.NeedKey(needs, at.Keyspace, access.Write, m.GetKey())
		if c.GetReturnValues() || m.GetRead() {
			needs = request.NeedKey(needs, at.Keyspace, access.Read, m.GetKey())
		}
	}
	for _, s := range c.GetHoldSpans() {
		needs = request.NeedSpan(needs, at.Keyspace, access.Write, s.GetStart(), s.GetEnd())
	}
	return request.NeedReads(needs, at.Keyspace, c.GetOnePhase().GetReads())
}
