package command

import (
	"bytes"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Load writes the records of a block, as puts of all of them at one timestamp would, but those
// whose keys have the same value already. So a load can be repeated, in the same blocks or in
// others, and what is there costs a look.
//
// Where nothing is in the way, one seek shows it, and the block goes into the log as it came. It is
// evaluated with no write pending, and until its entry is applied nothing else is: the records are
// not among the pending writes, and reads of its span wait.
var Load = register((*kvpb.Request_Load)(nil), Command{
	Name:  "load",
	Way:   InQueue,
	Body:  func(q *kvpb.Request) bool { return q.GetLoad() != nil },
	Needs: loadNeeds,
	Footprint: func(q *kvpb.Request) Footprint {
		return span(q.GetLoad().First, keys.Next(q.GetLoad().Last))
	},
	Alone:        always,
	MayDoNothing: always,
	CheckWrite:   checkLoad,
	Evaluate:     load,
})

// Loading is what is to be written of a block.
type Loading struct {
	Block []byte
	// Records is how many there are, Size how large their user keys and values are together, and Live
	// how many of the keys have a value before.
	Records, Live int
	Size          uint64
	// Present is how many records of the request are there already.
	Present int
	// Prior is at or above the versions that its keys have.
	Prior hlc.Timestamp
	// TTL is how long the values live; 0: they do not expire.
	TTL time.Duration
}

func checkLoad(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
	c := q.GetLoad()
	for _, key := range [...][]byte{c.GetFirst(), c.GetLast()} {
		if p := checkKey(d, key); p != nil {
			return Writing{}, p
		}
	}
	if p := checkTTL(c.GetFirst(), c.GetTtl(), false); p != nil {
		return Writing{}, p
	}
	switch n := len(c.GetBlock()); {
	case bytes.Compare(c.First, c.Last) > 0:
		return Writing{}, Invalid("a block's first key %s is above its last, %s", keys.Pretty(c.First),
			keys.Pretty(c.Last))
	case n > block.MaxBody+1024:
		return Writing{}, Invalid("a block has at most %d MiB, this one has %d bytes",
			block.MaxBody>>20, n)
	default:
		return Writing{Size: n}, nil
	}
}

func load(e *Evaluation, q *kvpb.Request) error {
	c := q.GetLoad()
	records, err := block.Open(c.Block)
	if err != nil {
		e.Refuse(Invalid("%v", err).Response(q))
		return nil
	}
	// Before anything is believed of it: the rest looks at what is in the partition's state.
	if p := checkBlock(records, c); p != nil {
		e.Refuse(p.Response(q))
		return nil
	}
	free, err := holdsNothing(e, InternalSpan(e.Descriptor, c.First, keys.Next(c.Last)))
	if err != nil {
		return err
	}
	l := &Loading{Block: c.Block, Records: records.Records(), Size: records.Size(),
		TTL: e.TTLOf(c.Ttl)}
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

// checkBlock reads a block to its end, and says what is wrong with it. Its keys are in order, so
// that all are in the partition if the first and the last are.
func checkBlock(records *block.Reader, c *kvpb.LoadRequest) *Problem {
	last := []byte(nil)
	for n := 0; ; n++ {
		key, _, ok, err := records.Next()
		switch {
		case err != nil:
			return Invalid("%v", err)
		case !ok && n == 0:
			return Invalid("a block needs at least one record")
		case !ok && (!bytes.Equal(last, c.Last) || uint64(n) != uint64(c.Records) ||
			records.Size() != c.Size):
			return Invalid("a block is said to have %d records, %d bytes, and to end at key %s; it has "+
				"%d, %d bytes, and ends at %s", c.Records, c.Size, keys.Pretty(c.Last), n, records.Size(),
				keys.Pretty(last))
		case !ok:
			return nil
		case n == 0 && !bytes.Equal(key, c.First):
			return Invalid("a block is said to begin at key %s, and begins at %s", keys.Pretty(c.First),
				keys.Pretty(key))
		}
		last = key
	}
}

// holdsNothing says that there is no version of any key in a span.
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

// compare takes out of a block what is there already. done: an earlier attempt of the request has
// written what was to be written, which has been said.
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
	var earlier Own
	written := 0
	for records.Rewind(); ; {
		key, value, ok, err := records.Next()
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		internalKey := e.InternalKey(key)
		v, found, err := getter.Newest(internalKey)
		if err != nil {
			return false, err
		}
		same := l.sameAs(e, &v, found, value)
		// What a later request has written over is not written again.
		if found && e.Since.Less(v.Timestamp) {
			own, mine := v, v.Request == e.Request
			if !mine && !same {
				if own, mine, err = getter.FindRequest(internalKey, e.Since, e.Request); err != nil {
					return false, err
				}
			}
			if mine {
				earlier = Own{Found: true, Timestamp: own.Timestamp, CommitWait: own.CommitWait}
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
		if err := rest.Add(key, value); err != nil {
			return false, err
		}
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

// sameAs says that a key has the value that is to be loaded already, and that it expires if that is
// to. Until when it lives is not compared: a load that is repeated does not write everything anew.
func (l *Loading) sameAs(e *Evaluation, v *mvcc.Version, found bool, value []byte) bool {
	if !isValue(*v, found) || !bytes.Equal(v.Value, value) || (v.Expires != 0) != (l.TTL != 0) ||
		v.ExpiredAt(e.judgedAt()) {
		return false
	}
	e.rests(v.Expires)
	return true
}

func loadResponse(q *kvpb.Request, at hlc.Timestamp, l *Loading) *kvpb.Response {
	m := &kvpb.LoadResponse{Written: uint32(l.Records), Present: uint32(l.Present)}
	if !at.IsZero() {
		m.Version = rpc.ToTimestamp(at)
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Load{Load: m}}
}
