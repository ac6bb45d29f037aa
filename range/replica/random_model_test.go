package replica

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// modelVersion is a version as the naive model keeps it.
type modelVersion struct {
	ts        hlc.Timestamp
	request   mvcc.RequestID
	tombstone bool
	value     string
	// expires is a wall time; 0: never.
	expires int64
}

// live says whether it is a value that is there at a timestamp.
func (v *modelVersion) live(at hlc.Timestamp) bool {
	return !v.tombstone && (v.expires == 0 || at.Less(hlc.Timestamp{Wall: v.expires}))
}

// newest is the newest committed version of a key, for requests that shall hit.
func (h *history) newest(key string) modelVersion {
	h.model()
	if versions := h.versions[key]; len(versions) > 0 {
		return versions[len(versions)-1]
	}
	return modelVersion{}
}

// model takes in what was committed since the last call. Removals of garbage it ignores.
func (h *history) model() {
	h.c.mu.Lock()
	log := h.c.log
	h.c.mu.Unlock()
	for ; h.modelled < len(log); h.modelled++ {
		e := log[h.modelled]
		if len(e.Data) == 0 {
			continue
		}
		p, err := proposal.Decode(e.Data)
		if err != nil {
			h.t.Fatal(err)
		}
		// Everything or nothing: the one before it in its term must be the one it was evaluated on.
		if follows := h.commands.CommandTerm == e.Term; (follows && p.Base != h.commands.Sequence) ||
			(!follows && p.Base != 0) {
			continue
		}
		h.commands.CommandTerm, h.commands.Sequence = e.Term, p.Sequence
		h.threshold = hlc.Max(h.threshold, p.Threshold)
		add := func(key string, ts hlc.Timestamp, header mvcc.Header, value []byte) {
			if n := len(h.versions[key]); n > 0 && ts.LessEq(h.versions[key][n-1].ts) {
				h.t.Fatalf("entry %d: key %s at %s, behind %s", e.Index, key, stamp(ts),
					stamp(h.versions[key][n-1].ts))
			}
			h.versions[key] = append(h.versions[key], modelVersion{ts, header.Request,
				header.Kind == mvcc.KindTombstone, string(value), header.Expires})
		}
		if p.Kind == proposal.KindLoad {
			l, err := proposal.DecodeLoad(p.Batch)
			if err != nil {
				h.t.Fatal(err)
			}
			for _, r := range recordsIn(l.Block) {
				expires := l.Expires
				switch moment, ok := r.Lifetime.Moment(); {
				case ok:
					expires = max(moment, l.Timestamp.Wall+1)
				case r.Lifetime == keys.Forever:
					expires = 0
				}
				add(string(r.Key), l.Timestamp, mvcc.Header{Kind: mvcc.KindValue, Request: l.Request,
					Expires: expires}, r.Value)
			}
			continue
		}
		err = proposal.WalkBatch(p.Batch, func(deletion bool, stateKey, stored []byte) error {
			internalKey, ts, err := keys.DecodeVersioned(stateKey)
			if err != nil || deletion {
				return nil
			}
			header, value, err := mvcc.DecodeHeader(stored)
			if err != nil {
				return err
			}
			add(string(internalKey[keys.KeyspacePrefixLength:]), ts, header, value)
			return nil
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// at is the model's value of a key.
func (h *history) at(key string, ts hlc.Timestamp) (modelVersion, bool) {
	versions := h.versions[key]
	i := sort.Search(len(versions), func(i int) bool { return ts.Less(versions[i].ts) })
	if i == 0 || !versions[i-1].live(ts) {
		return modelVersion{}, false
	}
	return versions[i-1], true
}

// check is run after every step.
func (h *history) check(t *rapid.T) {
	h.t = t
	h.c.mu.Lock()
	wrong := h.wrong
	h.c.mu.Unlock()
	if wrong != "" {
		t.Fatal(wrong)
	}
	sums := map[uint64]uint64{}
	for _, m := range h.c.members {
		index, sum, err := m.replica.Checksum()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := sums[index]; ok && other != sum {
			t.Fatalf("replica %s differs at index %d", m.id, index)
		}
		sums[index] = sum
	}
}

// finish brings everything to an end and compares it with the model.
func (h *history) finish() {
	if h.stale != nil {
		h.hearOfLeader(h.stale)
	}
	h.c.mu.Lock()
	h.c.lease = true
	h.c.mu.Unlock()
	for range 50 {
		h.leader.commit(-1)
		for _, m := range h.c.members {
			m.catchUp(-1)
		}
		h.leader.failReadsOnce(nil)
		h.c.settle()
	}
	h.model()
	h.check(h.t)
	for _, o := range h.operations {
		h.checkOperation(o)
	}
	for _, r := range h.readings {
		h.checkReading(r)
	}
	// The state is the model's, from the threshold on, and what is counted is what there is.
	r := h.leader.replica
	counted, err := storage.CountVersions(r.state, keys.PartitionSpan(r.Descriptor()), func() error {
		return nil
	})
	if err != nil || counted != r.Stats() {
		h.t.Fatalf("it holds %+v and says %+v, %v", counted, r.Stats(), err)
	}
	for _, key := range historyKeys {
		for _, v := range h.versions[string(key)] {
			if v.ts.Less(h.threshold) {
				continue
			}
			got, found, err := mvcc.Get(r.state, keys.InternalKey(r.Descriptor(), []byte(string(key))),
				v.ts)
			// A tombstone exactly at the threshold may be gone, and what has expired below it.
			expired := v.expires != 0 && v.expires <= h.threshold.Wall
			if err != nil || (found && (got.Timestamp != v.ts || string(got.Value) != v.value)) ||
				(!found && !v.tombstone && !expired) {
				h.t.Fatalf("key %c at %s: %+v, %v, %v; the model has %+v", key, stamp(v.ts), got, found,
					err, v)
			}
		}
	}
}

// checkOperation compares an operation's answer with the history of versions.
func (h *history) checkOperation(o *operation) {
	id := mvcc.RequestID{Client: uint64(o.client + 1), Sequence: o.request.Sequence}
	wrote := map[string]int{}
	for key, versions := range h.versions {
		for i, v := range versions {
			if v.request != id {
				continue
			}
			if _, twice := wrote[key]; twice {
				h.t.Fatalf("%v was applied twice to key %s", o.request, key)
			}
			wrote[key] = i
		}
	}
	if !o.done {
		return
	}
	version, written := h.outcome(o)
	for _, key := range written {
		i, ok := wrote[key]
		if !ok || h.versions[key][i].ts != version {
			h.t.Fatalf("%v was answered %s; the log does not have it", o.request, describe(o.response))
		}
	}
	if len(written) == 0 && len(wrote) > 0 && o.request.GetDeleteRange() == nil &&
		o.request.GetLoad() == nil {
		h.t.Fatalf("%v was answered %s; yet it was applied", o.request, describe(o.response))
	}
	live := func(key string) (modelVersion, bool) {
		if i := wrote[key]; i > 0 && h.versions[key][i-1].live(h.versions[key][i].ts) {
			return h.versions[key][i-1], true
		}
		return modelVersion{}, false
	}
	switch x := o.response.Result.(type) {
	case *kvpb.Response_Delete:
		key := string(o.request.GetDelete().Key)
		if _, existed := live(key); len(written) > 0 && existed != x.Delete.Existed {
			h.t.Fatalf("key %s: %s, but the version before says %t", key, describe(o.response), existed)
		}
	case *kvpb.Response_CompareAndSwap:
		c := o.request.GetCompareAndSwap()
		if s := x.CompareAndSwap; !s.Swapped {
			// What it says is there must have been there.
			for _, v := range h.versions[string(c.Key)] {
				if v.ts == wire.FromTimestamp(s.CurrentVersion) && v.value == string(s.Current) {
					return
				}
			}
			if s.Found {
				h.t.Fatalf("%v was answered %s; the log does not have that",
					o.request, describe(o.response))
			}
			return
		}
		before, found := live(string(c.Key))
		ok := false
		switch e := c.Expected.(type) {
		case *kvpb.CompareAndSwapRequest_Absent:
			ok = !found
		case *kvpb.CompareAndSwapRequest_Value:
			ok = found && before.value == string(e.Value)
		case *kvpb.CompareAndSwapRequest_Version:
			ok = found && before.ts == wire.FromTimestamp(e.Version)
		}
		if !ok {
			h.t.Fatalf("%v swapped on %+v (%t)", c, before, found)
		}
	case *kvpb.Response_Load:
		if x.Load.Written == 0 && len(wrote) > 0 {
			h.t.Fatalf("%v: %s, but it has written %v", o.request, describe(o.response), wrote)
		}
		for _, pair := range pairsOf(o.request) {
			if i, ok := wrote[pair[0]]; ok && h.versions[pair[0]][i].ts == version {
				continue
			}
			if !slices.ContainsFunc(h.versions[pair[0]], func(v modelVersion) bool {
				return v.value == pair[1] && !v.tombstone
			}) {
				h.t.Fatalf("%v: %s, but key %s was neither written nor there", o.request,
					describe(o.response), pair[0])
			}
		}
	case *kvpb.Response_DeleteRange:
		if n := uint64(len(wrote)); n != x.DeleteRange.Deleted {
			h.t.Fatalf("%v: %s, but %d tombstones are in the log", o.request, describe(o.response), n)
		}
		for key, i := range wrote {
			if h.versions[key][i].ts != version {
				h.t.Fatalf("%v: %s, but key %s has it at %s", o.request, describe(o.response), key,
					stamp(h.versions[key][i].ts))
			}
			if _, found := live(key); !found {
				h.t.Fatalf("%v deleted key %s, which was absent", o.request, key)
			}
		}
	}
}

// checkReading reads again what was read, from the model.
func (h *history) checkReading(r reading) {
	same := func(key string, at hlc.Timestamp, g *kvpb.GetResponse) {
		v, found := h.at(key, at)
		if found != g.Found || (found && (v.value != string(g.Value) || v.expires != int64(g.Expires) ||
			v.ts != wire.FromTimestamp(g.Version))) {
			h.t.Fatalf("%v was answered %s; at %s key %s is now %+v (%t)",
				r.request, describe(r.response), stamp(at), key, v, found)
		}
	}
	switch x := r.response.Result.(type) {
	case *kvpb.Response_Get:
		at := r.request.GetGet().At
		if r.response.ReadAt != nil {
			at = r.response.ReadAt
		}
		if at != nil {
			same(string(r.request.GetGet().Key), wire.FromTimestamp(at), x.Get)
		}
	case *kvpb.Response_BatchGet:
		for i, key := range r.request.GetBatchGet().Keys {
			same(string(key), wire.FromTimestamp(x.BatchGet.At), x.BatchGet.Values[i])
		}
	case *kvpb.Response_Scan:
		q := r.request.GetScan()
		at := wire.FromTimestamp(x.Scan.At)
		var want, got []string
		for _, key := range historyKeys {
			v, found := h.at(string(key), at)
			if found && bytes.Compare([]byte(string(key)), q.Start) >= 0 {
				want = append(want, fmt.Sprintf("%c=%s(%s%s)", key, v.value, stamp(v.ts),
					expiry(v.expires)))
			}
		}
		if q.Reverse {
			for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
				want[i], want[j] = want[j], want[i]
			}
		}
		for _, p := range rowsOf(x.Scan.Rows) {
			got = append(got, fmt.Sprintf("%s=%s(%s%s)", p.Key, p.Value, stamp(p.Version),
				expiry(p.Expires)))
		}
		if x.Scan.More && len(got) < len(want) {
			want = want[:len(got)]
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			h.t.Fatalf("%v was answered %s; at %s it is now %v", r.request, describe(r.response),
				stamp(at), want)
		}
	}
}
