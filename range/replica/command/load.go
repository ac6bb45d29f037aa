package command

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Load writes the records of a block, as puts of all of them at one timestamp would, but skips keys
// that have the same value already. So a load can be repeated, in the same blocks or in others; a
// record that exists costs only a look-up.
//
// Where the span is empty, one seek shows it, and the block goes into the log as it came. A load is
// evaluated with no write pending, and nothing else is evaluated until its entry is applied: its
// records are not among the pending writes, and reads of its span wait.
var Load = register((*kvpb.Request_Load)(nil), Command{
	Name:        "load",
	Dispatch:    InQueue,
	Body:        func(q *kvpb.Request) bool { return q.GetLoad() != nil },
	Permissions: loadNeeds,
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Span(q.GetLoad().First, keys.Next(q.GetLoad().Last))
	},
	Alone:        always,
	MayDoNothing: always,
	CheckWrite:   checkLoad,
	Evaluate:     load,
})

// Loading describes the part of a block that is to be written.
type Loading struct {
	Block []byte
	// Records is the number of records to write, Size the size of their user keys and values
	// together, and Live the number of their keys that have a value before.
	Records, Live int
	Size          uint64
	// Present is the number of the request's records that exist already.
	Present int
	// Prior is at or above all versions of its keys.
	Prior hlc.Timestamp
	// Lifetime is the lifetime of records that have none of their own.
	Lifetime keys.Lifetime
	// Own counts the records with a lifetime of their own. OwnExpiring of them expire, the first at
	// the wall time FirstExpiry; 0 if none does.
	Own, OwnExpiring int
	FirstExpiry      int64
}

// note counts a record that is to be written.
func (l *Loading) note(r block.Record) {
	if r.Lifetime == keys.DefaultLifetime {
		return
	}
	l.Own++
	if moment, ok := r.Lifetime.Moment(); ok {
		if l.OwnExpiring++; l.FirstExpiry == 0 || moment < l.FirstExpiry {
			l.FirstExpiry = moment
		}
	}
}

// Expiring returns how many of the records expire if they are written at a timestamp, and when the
// first of them does; 0 if none does.
func (l *Loading) Expiring(ts hlc.Timestamp) (records int, first int64) {
	records, first = l.OwnExpiring, l.FirstExpiry
	if first != 0 {
		first = keys.Until(first).ExpiryOf(ts)
	}
	if expiry := l.Lifetime.ExpiryOf(ts); expiry != 0 && l.Records > l.Own {
		records += l.Records - l.Own
		if first == 0 || expiry < first {
			first = expiry
		}
	}
	return records, first
}

// LifetimeOf returns the lifetime of a record.
func (l *Loading) LifetimeOf(r block.Record) keys.Lifetime {
	if r.Lifetime != keys.DefaultLifetime {
		return r.Lifetime
	}
	return l.Lifetime
}

func checkLoad(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
	c := q.GetLoad()
	for _, key := range [...][]byte{c.GetFirst(), c.GetLast()} {
		if p := request.CheckKey(d, key); p != nil {
			return Writing{}, p
		}
	}
	if p := request.CheckTTL(c.GetFirst(), c.GetTtl(), false); p != nil {
		return Writing{}, p
	}
	switch n := len(c.GetBlock()); {
	case bytes.Compare(c.First, c.Last) > 0:
		return Writing{}, request.Invalid("a block's first key %s is above its last, %s",
			keys.Pretty(c.First),
			keys.Pretty(c.Last))
	case n > block.MaxBody+1024:
		return Writing{}, request.Invalid("a block has at most %d MiB, this one has %d bytes",
			block.MaxBody>>20, n)
	default:
		return Writing{Size: n}, nil
	}
}

func load(e *Evaluation, q *kvpb.Request) error {
	c := q.GetLoad()
	records, err := block.Open(c.Block)
	if err != nil {
		e.Refuse(request.Invalid("%v", err).Response(q))
		return nil
	}
	// The block is checked before anything in it is relied on: what follows reads the partition's
	// state.
	l := &Loading{Block: c.Block, Lifetime: e.LifetimeOf(c.Ttl)}
	if p := l.checkBlock(records, c); p != nil {
		e.Refuse(p.Response(q))
		return nil
	}
	free, err := holdsNothing(e, request.InternalSpan(e.Descriptor, c.First, keys.Next(c.Last)))
	if err != nil {
		return err
	}
	l.Records, l.Size = records.Records(), records.Size()
	if !free {
		done, err := l.compare(e, q, records)
		if err != nil || done {
			return err
		}
	}
	if l.Records == 0 {
		e.NothingDone(loadResponse(q, hlc.Timestamp{}, l), 0)
		return nil
	}
	e.Outcome, e.Loading = Loaded, l
	e.Respond = func(_ *Result, q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
		return loadResponse(q, at, l)
	}
	return nil
}

// checkBlock reads a block to its end, and validates it. Its keys are in order, so all are in the
// partition if the first and the last are.
func (l *Loading) checkBlock(records *block.Reader, c *kvpb.LoadRequest) *request.Problem {
	last := []byte(nil)
	for n := 0; ; n++ {
		record, ok, err := records.Next()
		key := record.Key
		switch {
		case err != nil:
			return request.Invalid("%v", err)
		case !ok && n == 0:
			return request.Invalid("a block needs at least one record")
		case !ok && (!bytes.Equal(last, c.Last) || uint64(n) != uint64(c.Records) ||
			records.Size() != c.Size):
			return request.Invalid(
				"a block is said to have %d records, %d bytes, and to end at key %s; it has "+
					"%d, %d bytes, and ends at %s", c.Records, c.Size, keys.Pretty(c.Last), n,
				records.Size(),
				keys.Pretty(last))
		case !ok:
			return nil
		case n == 0 && !bytes.Equal(key, c.First):
			return request.Invalid("a block is said to begin at key %s, and begins at %s",
				keys.Pretty(c.First),
				keys.Pretty(key))
		}
		if p := request.CheckTTL(key, int64(record.Lifetime), false); p != nil {
			return p
		}
		last = key
		l.note(record)
	}
}

// holdsNothing reports whether a span has no version of any key.
func holdsNothing(e *Evaluation, span keys.Span) (free bool, err error) {
	bounds := keys.DataSpan(span)
	i, err := e.State.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End})
	if err != nil {
		return false, err
	}
	free = !i.First()
	if err := i.Error(); err != nil {
		_ = i.Close()
		return false, err
	}
	return free, i.Close()
}

// compare removes from a block the records that exist already. done is set if an earlier attempt of
// the request has written the rest; the request is then answered.
func (l *Loading) compare(e *Evaluation, q *kvpb.Request, records *block.Reader) (done bool,
	err error) {
	getter, err := mvcc.NewGetter(e.State)
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := getter.Close(); err == nil {
			err = closeErr
		}
	}()
	var rest block.Writer
	var earlier Replayed
	written := 0
	l.Own, l.OwnExpiring, l.FirstExpiry = 0, 0, 0
	for records.Rewind(); ; {
		record, ok, err := records.Next()
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		internalKey := e.InternalKey(record.Key)
		v, found, err := getter.Newest(internalKey)
		if err != nil {
			return false, err
		}
		same := l.sameAs(e, &v, found, record)
		// A key that a later request has overwritten is not written again.
		if found && e.Since.Less(v.Timestamp) {
			own, mine := v, v.Request == e.Request
			if !mine && !same {
				if own, mine, err = getter.FindRequest(internalKey, e.Since, e.Request); err != nil {
					return false, err
				}
			}
			if mine {
				earlier = Replayed{Found: true, Timestamp: own.Timestamp, CommitWait: own.CommitWait}
				written++
				continue
			}
		}
		if same {
			e.HoldFor(v.CommitWait, v.Timestamp)
			l.Present++
			continue
		}
		if found {
			l.Prior = hlc.Max(l.Prior, v.Timestamp)
		}
		if isValue(v, found) {
			l.Live++
		}
		if err := rest.Add(record); err != nil {
			return false, err
		}
		l.note(record)
	}
	if earlier.Found {
		l.Records, l.Present = written, l.Records-written
		e.HoldFor(earlier.CommitWait, earlier.Timestamp)
		e.Duplicate(loadResponse(q, earlier.Timestamp, l), 0)
		return true, nil
	}
	if l.Present > 0 {
		l.Records, l.Size = rest.Records(), rest.Size()
		l.Block = rest.Finish()
	}
	return false, nil
}

// sameAs reports whether a key already has a record's value and expiry. A record with a time to
// live would expire at another moment in each load. The stored expiry is accepted while at least
// half of the time to live is left, and no more than all of it: a load that is repeated soon does
// not write everything anew, and a value that is about to expire is renewed.
func (l *Loading) sameAs(e *Evaluation, v *mvcc.Version, found bool, r block.Record) bool {
	if !isValue(*v, found) || !bytes.Equal(v.Value, r.Value) || v.ExpiredAt(e.judgedAt()) {
		return false
	}
	lifetime, now := l.LifetimeOf(r), hlc.Max(e.judgedAt(), v.Timestamp)
	least, most := lifetime.ExpiryOf(v.Timestamp), lifetime.ExpiryOf(v.Timestamp)
	if _, exact := lifetime.Moment(); !exact && lifetime != keys.Forever {
		least, most = (lifetime / 2).ExpiryOf(now), lifetime.ExpiryOf(now)
	}
	if v.Expires < least || v.Expires > most {
		return false
	}
	e.rests(v.Expires)
	return true
}

func loadResponse(q *kvpb.Request, at hlc.Timestamp, l *Loading) *kvpb.Response {
	m := &kvpb.LoadResponse{Written: uint32(l.Records), Present: uint32(l.Present)}
	if !at.IsZero() {
		m.Version = wire.ToTimestamp(at)
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Load{Load: m}}
}

// loadNeeds are Admin of the keyspace, because a load takes precedence over other writes, and
// Write.
func loadNeeds(at request.Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	c := q.GetLoad()
	needs = request.NeedAll(needs, at.Keyspace, access.Admin)
	return request.NeedSpan(needs, at.Keyspace, access.Write, c.GetFirst(), keys.Next(c.GetLast()))
}
