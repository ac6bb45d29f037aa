package replica

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A random history: three replicas with clocks that are apart, clients that retry, elections that
// come before, during and after everything, lost proposals, crashes, snapshots, garbage collection.
// Beside it stands a naive model: the versions that the committed log holds, kept in a map, decided
// by the rules and not by the code under test. Checked are:
//
//   - replicas at the same index have the same checksum, and the state is the model's;
//   - of each request at most one version per key was ever written, and one if it was acknowledged,
//     at the timestamp in the answer;
//   - versions of a key ascend in the order of the log, and are above whatever had been seen of the
//     key before the request was first sent;
//   - what compare-and-swap and delete say is true of the version before theirs;
//   - a read of the latest value sees everything that was acknowledged or read before it began;
//   - a read at a timestamp is repeatable: in the end the model says the same of that timestamp;
//   - a read that a leader has admitted, and any replica answers later, is as good as one that the
//     leader has answered when it admitted it;
//   - what a client has seen to have expired is not seen again, whichever leader answers.
func TestRandomHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		defer h.c.close()
		t.Repeat(map[string]func(*rapid.T){
			"write":    h.write,
			"write2":   h.write,
			"write3":   h.write,
			"retry":    h.retry,
			"read":     h.read,
			"read2":    h.read,
			"follow":   h.follow,
			"follow2":  h.follow,
			"commit":   h.commit,
			"apply":    h.apply,
			"apply2":   h.apply,
			"drop":     h.drop,
			"elect":    h.elect,
			"lease":    h.lease,
			"confirm":  h.confirm,
			"crash":    h.crash,
			"snapshot": h.snapshot,
			"collect":  h.collect,
			"clock": func(t *rapid.T) {
				h.advance(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 80, 300}).Draw(t,
					"ms")) * time.Millisecond)
			},
			"": h.check,
		})
		h.finish()
	})
}

const historyKeys = "bcdef"

// fault notes that something is wrong, from wherever it was noticed; check reports it.
func (h *history) fault(format string, args ...any) {
	if h.wrong == "" {
		h.wrong = fmt.Sprintf(format, args...)
	}
}

// operation is one request of a client, with all its attempts.
type operation struct {
	client  int
	request *kvpb.Request
	// called is when the first attempt was sent; seen is the highest version known of each key at
	// that moment, and gone the highest one that was known to be absent.
	called     int
	seen, gone map[string]hlc.Timestamp
	// attempts counts how often it was sent. Only the answer to the last attempt reaches the
	// client: the streams of the others broke.
	attempts int
	done     bool
	response *kvpb.Response
}

// reading is an answered read that is checked in the end.
type reading struct {
	request  *kvpb.Request
	response *kvpb.Response
}

type history struct {
	t      *rapid.T
	c      *testCluster
	leader *member
	// elected is when, by the physical clock.
	elected int64
	step    int
	clients [3]struct {
		sequence uint64
		session  hlc.Timestamp
	}
	operations []*operation
	readings   []reading
	// admitted are reads that a leader has admitted.
	admitted []admittedRead
	// seen is the highest version of each key that was acknowledged or read.
	seen map[string]hlc.Timestamp
	// gone is the highest version of each key that was seen before, and then found absent.
	gone map[string]hlc.Timestamp
	// acknowledged is the highest timestamp of all that was acknowledged.
	acknowledged hlc.Timestamp

	// The model.
	modelled  int
	commands  storage.Record
	versions  map[string][]modelVersion
	stale     *member
	threshold hlc.Timestamp

	wrong string
}

func newHistory(t *rapid.T) *history {
	h := &history{t: t, seen: map[string]hlc.Timestamp{},
		gone: map[string]hlc.Timestamp{}, versions: map[string][]modelVersion{}}
	h.c = newTestCluster(t, 3, config.Limits{MaxInFlight: rapid.IntRange(1, 3).Draw(t, "in flight"),
		MaxEntryBytes: 200, MaxQueuedWrites: 6,
		LoadTableBytes: rapid.SampledFrom([]int{1, 1 << 20}).Draw(t, "table bytes")})
	for i, m := range h.c.members {
		m.skew = time.Duration(i-1) * 90 * time.Millisecond
		// A snapshot has a table for each version, or two.
		m.node.Hooks.TableBytes, m.replica.snapshots.TableBytes = 1, 1
	}
	for i := range h.clients {
		// They have asked for Now. (A session of zero proves nothing about what was collected.)
		h.clients[i].session = hlc.Timestamp{Wall: h.c.physical.Now()}
	}
	h.elect(t)
	h.apply(t)
	return h
}

func (h *history) advance(d time.Duration) {
	h.step++
	h.c.physical.Advance(d)
}

// send submits a request to a member and takes the answer in when it comes.
func (h *history) send(m *member, client int, q *kvpb.Request, answered func(*kvpb.Response)) {
	h.step++
	replies := 0
	m.replica.Submit([]config.Pending{{Client: uint64(client + 1), Request: q, Arrived: time.Now(),
		Reply: func(response *kvpb.Response) {
			response = kept(response)
			// All goroutines have ended before the next step begins, so nothing else runs; but several
			// may answer at once.
			h.c.mu.Lock()
			defer h.c.mu.Unlock()
			if replies++; replies > 1 {
				h.fault("request %v was answered twice", q)
			}
			if s := &h.clients[client]; response.Now != nil {
				s.session = hlc.Max(s.session, wire.FromTimestamp(response.Now))
			}
			answered(response)
		}}})
	h.c.settle()
}

// target is the leader mostly, or another one.
func (h *history) target(t *rapid.T) *member {
	if rapid.IntRange(0, 9).Draw(t, "target") > 0 {
		return h.leader
	}
	return h.draw(t, "member")
}

func (h *history) draw(t *rapid.T, label string) *member {
	return h.c.members[rapid.IntRange(0, len(h.c.members)-1).Draw(t, label)]
}

func drawKey(t *rapid.T) []byte {
	return []byte{historyKeys[rapid.IntRange(0, len(historyKeys)-1).Draw(t, "key")]}
}

func (h *history) write(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	s := &h.clients[client]
	s.sequence++
	q := &kvpb.Request{Id: uint64(h.step), Generation: 1, Sequence: s.sequence,
		Session: wire.ToTimestamp(s.session)}
	value := func() []byte { return fmt.Appendf(nil, "v%d-%d", client, s.sequence) }
	moment := func() keys.Lifetime {
		ms := rapid.SampledFrom([]int64{-1000, -10, 0, 10, 200, 1000}).Draw(t, "moment")
		return keys.Until(max(2, s.session.Wall+ms*int64(time.Millisecond)))
	}
	ttl := func() int64 {
		ms := rapid.SampledFrom([]int64{-2, -1, 0, 0, 0, 1, 10, 50, 200, 500, 1000}).Draw(t, "ttl")
		switch ms {
		case -2:
			return int64(moment())
		case -1:
			return int64(keys.Forever)
		}
		return ms * int64(time.Millisecond)
	}
	switch rapid.IntRange(0, 8).Draw(t, "write") {
	case 0, 1, 2:
		q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: drawKey(t), Value: value(),
			Ttl: ttl()}}
	case 3:
		q.Command = &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: drawKey(t)}}
	case 4, 5:
		c := &kvpb.CompareAndSwapRequest{Key: drawKey(t), NewValue: value(), Ttl: ttl()}
		newest := h.newest(string(c.Key))
		switch rapid.IntRange(0, 2).Draw(t, "expect") {
		case 0:
			c.Expected = &kvpb.CompareAndSwapRequest_Absent{Absent: true}
		case 1:
			c.Expected = &kvpb.CompareAndSwapRequest_Value{Value: []byte(newest.value)}
		case 2:
			c.Expected = &kvpb.CompareAndSwapRequest_Version{
				Version: &kvpb.Timestamp{Wall: uint64(newest.ts.Wall), Logical: newest.ts.Logical}}
		}
		q.Command = &kvpb.Request_CompareAndSwap{CompareAndSwap: c}
	case 6:
		b := &kvpb.WriteBatchRequest{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]byte(historyKeys)), 1, 3,
			rapid.ID[byte]).Draw(t, "keys") {
			o := &kvpb.WriteOperation{Key: []byte{key}, Value: value(), Ttl: ttl()}
			if rapid.Bool().Draw(t, "delete") {
				o.Value, o.Delete, o.Ttl = nil, true, 0
			}
			b.Operations = append(b.Operations, o)
		}
		q.Command = &kvpb.Request_WriteBatch{WriteBatch: b}
	case 7:
		q.Command = &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{
			Start: drawKey(t), MaxRows: rapid.Uint32Range(0, 2).Draw(t, "max")}}
	case 8:
		var pairs []string
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]byte(historyKeys)), 1, 4,
			rapid.ID[byte]).Draw(t, "keys") {
			pairs = append(pairs, string(key), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "value"))
		}
		q.Command = loadOf(pairs...).Command
		q.GetLoad().Ttl = ttl()
		if rapid.Bool().Draw(t, "lifetimes") {
			withLifetimes(q.GetLoad(), func([]byte) keys.Lifetime {
				switch rapid.IntRange(0, 2).Draw(t, "lifetime") {
				case 0:
					return keys.DefaultLifetime
				case 1:
					return keys.Forever
				}
				return moment()
			})
		}
	}
	o := &operation{client: client, request: q, called: h.step, seen: maps.Clone(h.seen),
		gone: maps.Clone(h.gone)}
	h.operations = append(h.operations, o)
	h.attempt(t, o)
}

// retry sends an operation once more, whether or not its last attempt has been answered.
func (h *history) retry(t *rapid.T) {
	var open []*operation
	for _, o := range h.operations {
		if !o.done {
			open = append(open, o)
		}
	}
	if len(open) == 0 {
		t.Skip("nothing to retry")
	}
	h.attempt(t, open[rapid.IntRange(0, len(open)-1).Draw(t, "operation")])
}

func (h *history) attempt(t *rapid.T, o *operation) {
	q := &kvpb.Request{Id: o.request.Id, Generation: o.request.Generation, Term: h.c.term,
		Sequence: o.request.Sequence,
		Session:  o.request.Session, Command: o.request.Command}
	o.attempts++
	attempt := o.attempts
	h.send(h.target(t), o.client, q, func(response *kvpb.Response) {
		if response.Error != nil {
			if response.Error.Code == kvpb.ErrorCode_INVALID_ARGUMENT ||
				response.Error.Code == kvpb.ErrorCode_NODE_UNHEALTHY {
				h.fault("%s", describe(response))
			}
			return
		}
		if o.done || attempt != o.attempts {
			return
		}
		o.done, o.response = true, response
		h.observeWrite(o)
	})
}

// observeWrite notes what an answer says about the state, at the moment it says it.
func (h *history) observeWrite(o *operation) {
	version, written := h.outcome(o)
	for _, key := range written {
		if version.LessEq(o.seen[key]) {
			h.fault("%s was answered with a version that is not above %s, known before it was sent",
				describe(o.response), stamp(o.seen[key]))
		}
		h.seen[key] = hlc.Max(h.seen[key], version)
	}
	if session := wire.FromTimestamp(o.request.Session); len(written) > 0 && version.LessEq(session) {
		h.fault("%s is not above the session's timestamp %s", describe(o.response), stamp(session))
	}
	h.acknowledged = hlc.Max(h.acknowledged, version)
	if x := o.response.GetCompareAndSwap(); x != nil && !x.Swapped {
		h.sees(o.response, string(o.request.GetCompareAndSwap().Key), x.Found, x.CurrentVersion, o.seen,
			o.gone)
	}
}

// sees notes what an answer says of the latest value of a key. seen and gone are what was known
// when the question was asked.
func (h *history) sees(response *kvpb.Response, key string, found bool, version *kvpb.Timestamp,
	seen, gone map[string]hlc.Timestamp) {
	if !found {
		h.gone[key] = hlc.Max(h.gone[key], seen[key])
		return
	}
	v := wire.FromTimestamp(version)
	if v.LessEq(gone[key]) {
		h.fault("key %s: %s, but what was written up to %s was known to be absent", key,
			describe(response), stamp(gone[key]))
	}
}

// outcome is the version that an answer claims to have written, and the keys that are known to have
// it.
func (h *history) outcome(o *operation) (version hlc.Timestamp, written []string) {
	switch x := o.response.Result.(type) {
	case *kvpb.Response_Put:
		return wire.FromTimestamp(x.Put.Version), []string{string(o.request.GetPut().Key)}
	case *kvpb.Response_Delete:
		if x.Delete.Version != nil {
			return wire.FromTimestamp(x.Delete.Version), []string{string(o.request.GetDelete().Key)}
		}
	case *kvpb.Response_CompareAndSwap:
		if x.CompareAndSwap.Swapped {
			return wire.FromTimestamp(x.CompareAndSwap.Version),
				[]string{string(o.request.GetCompareAndSwap().Key)}
		}
	case *kvpb.Response_WriteBatch:
		for _, operation := range o.request.GetWriteBatch().Operations {
			written = append(written, string(operation.Key))
		}
		return wire.FromTimestamp(x.WriteBatch.Version), written
	case *kvpb.Response_DeleteRange:
		return wire.FromTimestamp(x.DeleteRange.Version), nil
	case *kvpb.Response_Load:
		if x.Load.Present == 0 {
			for _, pair := range pairsOf(o.request) {
				written = append(written, pair[0])
			}
		}
		return wire.FromTimestamp(x.Load.Version), written
	}
	return hlc.Timestamp{}, nil
}

func (h *history) read(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	q := &kvpb.Request{Id: uint64(h.step), Generation: 1,
		Session: wire.ToTimestamp(h.clients[client].session)}
	if rapid.Bool().Draw(t, "term") {
		q.Term = h.c.term
	}
	var at *kvpb.Timestamp
	if rapid.IntRange(0, 2).Draw(t, "at") == 0 {
		at = wire.ToTimestamp(hlc.Timestamp{Wall: h.c.physical.Now()}.Add(
			time.Duration(rapid.IntRange(-400, 80).Draw(t, "ms")) * time.Millisecond))
	}
	switch rapid.IntRange(0, 3).Draw(t, "read") {
	case 0, 1:
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: drawKey(t), At: at}}
	case 2:
		q.Command = &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{Keys: [][]byte{drawKey(t),
			drawKey(t)}, At: at}}
	case 3:
		q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: drawKey(t),
			Reverse: rapid.Bool().Draw(t, "reverse"), At: at,
			MaxRows: rapid.Uint32Range(0, 3).Draw(t, "max")}}
	}
	seen, gone := maps.Clone(h.seen), maps.Clone(h.gone)
	acknowledged := h.acknowledged
	h.sendRead(t, h.target(t), client, q, func(response *kvpb.Response) {
		if response.Error != nil {
			return
		}
		h.readings = append(h.readings, reading{q, response})
		if at != nil {
			return
		}
		switch x := response.Result.(type) {
		case *kvpb.Response_Get:
			key := string(q.GetGet().Key)
			version := wire.FromTimestamp(x.Get.Version)
			// That of an absent key is not told: then the tombstone, or nothing, must be what was there.
			if x.Get.Found && version.Less(seen[key]) {
				h.fault("key %s: %s, but %s was known before", key, describe(response), stamp(seen[key]))
			}
			h.sees(response, key, x.Get.Found, x.Get.Version, seen, gone)
			if x.Get.Found {
				h.seen[key] = hlc.Max(h.seen[key], version)
			}
		case *kvpb.Response_BatchGet:
			if wire.FromTimestamp(x.BatchGet.At).Less(acknowledged) {
				h.fault("%s, but a write at %s was acknowledged before", describe(response),
					stamp(acknowledged))
			}
			for i, g := range x.BatchGet.Values {
				h.sees(response, string(q.GetBatchGet().Keys[i]), g.Found, g.Version, seen, gone)
			}
		case *kvpb.Response_Scan:
			if wire.FromTimestamp(x.Scan.At).Less(acknowledged) {
				h.fault("%s, but a write at %s was acknowledged before", describe(response),
					stamp(acknowledged))
			}
			for _, row := range rowsOf(x.Scan.Rows) {
				h.sees(response, string(row.Key), true, wire.ToTimestamp(row.Version), seen, gone)
			}
		}
	})
}
