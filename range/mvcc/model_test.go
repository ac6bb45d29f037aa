package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openState(t testing.TB) *engine.State {
	t.Helper()
	s, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "/state"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// model is the naive store: every version of every key, newest first.
type model map[string][]Version

func (m model) put(key []byte, v Version) {
	versions := m[string(key)]
	i := 0
	for i < len(versions) && v.Timestamp.Less(versions[i].Timestamp) {
		i++
	}
	m[string(key)] = slices.Insert(versions, i, v)
}

func (m model) has(key []byte, ts hlc.Timestamp) bool {
	return slices.ContainsFunc(m[string(key)], func(v Version) bool { return v.Timestamp == ts })
}

// stored is the newest version at or below at, expired or not.
func (m model) stored(key []byte, at hlc.Timestamp) (Version, bool) {
	for _, v := range m[string(key)] {
		if v.Timestamp.LessEq(at) {
			return v, true
		}
	}
	return Version{}, false
}

// get is stored as a read sees it: from its expiry on a value is none.
func (m model) get(key []byte, at hlc.Timestamp) (Version, bool) {
	v, found := m.stored(key, at)
	if v.Expires > 0 && !at.Less(hlc.Timestamp{Wall: v.Expires}) {
		v.Kind, v.Value = KindExpired, nil
	}
	return v, found
}

func (m model) getUncertain(key []byte, at hlc.Timestamp, limits Limits) (Version, bool, error) {
	if v, found := m.stored(key, hlc.Max(at, limits.Versions)); found && at.Less(v.Timestamp) {
		return Version{}, false, &UncertaintyError{Key: key, Timestamp: v.Timestamp}
	}
	v, found := m.get(key, at)
	later, _ := m.stored(key, at)
	if expiry := (hlc.Timestamp{Wall: later.Expires}); later.Expires > 0 && v.Kind == KindValue &&
		expiry.LessEq(limits.Expiries) {
		return Version{}, false, &UncertaintyError{Key: key, Timestamp: expiry, Expiry: true}
	}
	return v, found, nil
}

func (m model) keysIn(span keys.Span, reverse bool) []string {
	var all []string
	for key := range m {
		if span.Contains([]byte(key)) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	if reverse {
		slices.Reverse(all)
	}
	return all
}

type row struct {
	key string
	v   Version
}

func (r row) String() string {
	return fmt.Sprintf("%q@%s=%s:%q/%v", r.key, r.v.Timestamp, r.v.Kind, r.v.Value, r.v.Request)
}

// scan is what a scan without limits gives, and the highest timestamp of what it saw with commit
// wait.
func (m model) scan(o ScanOptions) (rows []row, waits hlc.Timestamp, _ error) {
	for _, key := range m.keysIn(o.Span, o.Reverse) {
		v, found, err := m.getUncertain([]byte(key), o.At, o.Uncertain)
		if o.ExpiredAt != (hlc.Timestamp{}) && err == nil {
			v, found = m.stored([]byte(key), o.At)
			if v.Expires > 0 && v.Expires <= o.ExpiredAt.Wall {
				v.Kind, v.Value = KindExpired, nil
			}
		}
		if err != nil {
			return nil, waits, err
		}
		if found && v.CommitWait {
			waits = hlc.Max(waits, v.Timestamp)
		}
		if found && v.Kind == KindValue {
			if o.KeysOnly {
				v.Value = nil
			}
			rows = append(rows, row{key, v})
		}
	}
	return rows, waits, nil
}

func sameVersion(a, b Version) bool {
	return a.Timestamp == b.Timestamp && a.Kind == b.Kind && a.Request == b.Request &&
		a.CommitWait == b.CommitWait && a.Expires == b.Expires && bytes.Equal(a.Value, b.Value)
}

func sameRows(a, b []row) bool {
	return slices.EqualFunc(a, b, func(x, y row) bool {
		return x.key == y.key && sameVersion(x.v, y.v)
	})
}

func sameUncertainty(a, b error) bool {
	var x, y *UncertaintyError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return a == nil && b == nil
	}
	return bytes.Equal(x.Key, y.Key) && x.Timestamp == y.Timestamp && x.Expiry == y.Expiry
}

// Keys that are short, share prefixes and hold zeros; few timestamps, so that they meet.
var (
	genKey = rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 0x01, 'a', 0xff}), 0, 2),
		func(k []byte) []byte {
			return append([]byte{0, 0, 0, 7}, k...)
		})
	genTimestamp = rapid.Custom(func(t *rapid.T) hlc.Timestamp {
		return hlc.Timestamp{Wall: rapid.Int64Range(1, 30).Draw(t, "wall"),
			Logical: rapid.Uint32Range(0, 1).Draw(t, "logical")}
	})
	genLimits = rapid.Custom(func(t *rapid.T) Limits {
		return Limits{Versions: genTimestamp.Draw(t, "versions"),
			Expiries: genTimestamp.Draw(t, "expiries")}
	})
	genSpan = rapid.Custom(func(t *rapid.T) keys.Span {
		if rapid.IntRange(0, 3).Draw(t, "whole") == 0 {
			return keys.PrefixSpan([]byte{0, 0, 0, 7})
		}
		return keys.Span{Start: genKey.Draw(t, "start"), End: genKey.Draw(t, "end")}
	})
	genID = rapid.Custom(func(t *rapid.T) RequestID {
		return RequestID{Client: rapid.Uint64Range(0, 3).Draw(t, "client"),
			Sequence: rapid.Uint64Range(0, 300).Draw(t, "sequence")}
	})
	genValue = rapid.SliceOfN(rapid.Byte(), 0, 20)
)

// TestBesideModel writes, removes garbage and reads at random, here and in the model.
func TestBesideModel(t *testing.T) {
	s := openState(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		// Every run has a keyspace of its own in the one state.
		run++
		b := s.NewBatch()
		if err := b.DeleteRange(keys.DataSpan(keys.PrefixSpan([]byte{0, 0, 0, 7})).Start,
			keys.DataSpan(keys.PrefixSpan([]byte{0, 0, 0, 7})).End, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
		if run%10 == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}

		m := model{}
		// No reads below.
		var threshold hlc.Timestamp
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				b := s.NewBatch()
				defer b.Close()
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					key, ts := genKey.Draw(t, "key"), genTimestamp.Draw(t, "ts")
					if m.has(key, ts) || ts.LessEq(threshold) {
						continue
					}
					v := Version{Timestamp: ts, Kind: KindValue, Request: genID.Draw(t, "id"),
						Value: genValue.Draw(t, "value")}
					v.CommitWait = rapid.IntRange(0, 3).Draw(t, "waits") == 0
					if rapid.IntRange(0, 3).Draw(t, "tombstone") == 0 {
						v.Kind, v.Value = KindTombstone, nil
					} else if rapid.IntRange(0, 2).Draw(t, "expires") == 0 {
						v.Expires = ts.Wall + rapid.Int64Range(1, 15).Draw(t, "ttl")
					}
					if err := Write(b, key, ts, Header{v.Kind, v.Request, v.CommitWait, v.Expires},
						v.Value); err != nil {
						t.Fatal(err)
					}
					m.put(key, v)
				}
				if err := s.Commit(b); err != nil {
					t.Fatal(err)
				}
			},
			"get": func(t *rapid.T) {
				key, at := genKey.Draw(t, "key"), genTimestamp.Draw(t, "at")
				if at.Less(threshold) {
					at = threshold
				}
				got, found, err := Get(s, key, at)
				want, wantFound := m.get(key, at)
				if err != nil || found != wantFound || !sameVersion(got, want) {
					t.Fatalf("get %q at %s: %v %v %v, want %v %v", key, at, got, found, err, want, wantFound)
				}
				limits := genLimits.Draw(t, "limits")
				got, found, err = GetUncertain(s, key, at, limits)
				want, wantFound, wantErr := m.getUncertain(key, at, limits)
				if !sameUncertainty(err, wantErr) || found != wantFound || !sameVersion(got, want) {
					t.Fatalf("get %q at %s until %v: %v %v %v, want %v %v %v", key, at, limits, got,
						found, err, want, wantFound, wantErr)
				}
				got, found, err = Newest(s, key)
				want, wantFound = m.stored(key, hlc.MaxTimestamp)
				if err != nil || found != wantFound || !sameVersion(got, want) {
					t.Fatalf("newest %q: %v %v %v, want %v %v", key, got, found, err, want, wantFound)
				}
			},
			"find request": func(t *rapid.T) {
				key, after, id := genKey.Draw(t, "key"), genTimestamp.Draw(t, "after"), genID.Draw(t, "id")
				var want Version
				var wantFound bool
				for _, v := range m[string(key)] {
					if after.Less(v.Timestamp) && v.Request == id && !id.IsZero() {
						want, wantFound = v, true
						break
					}
				}
				got, found, err := findRequest(s, key, after, id)
				if err != nil || found != wantFound || !sameVersion(got, want) {
					t.Fatalf("find %v of %q after %s: %v %v %v, want %v %v", id, key, after, got,
						found, err, want, wantFound)
				}
			},
			"scan": func(t *rapid.T) { checkScan(t, s, m, threshold) },
			"garbage": func(t *rapid.T) {
				threshold = hlc.Max(threshold, genTimestamp.Draw(t, "threshold"))
				checkGarbage(t, s, m, threshold)
			},
		})
	})
}

// checkScan pages through a scan with limits and compares the pages together with the model.
func checkScan(t *rapid.T, s *engine.State, m model, threshold hlc.Timestamp) {
	o := ScanOptions{
		Span:       genSpan.Draw(t, "span"),
		At:         hlc.Max(threshold, genTimestamp.Draw(t, "at")),
		Reverse:    rapid.Bool().Draw(t, "reverse"),
		KeysOnly:   rapid.Bool().Draw(t, "keysOnly"),
		MaxRows:    rapid.IntRange(0, 4).Draw(t, "maxRows"),
		MaxBytes:   rapid.Int64Range(0, 40).Draw(t, "maxBytes"),
		MaxSkipped: rapid.IntRange(0, 3).Draw(t, "maxSkipped"),
	}
	if o.At.IsZero() {
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "uncertain") == 0 {
		o.Uncertain = genLimits.Draw(t, "until")
	} else if rapid.IntRange(0, 3).Draw(t, "expired later") == 0 {
		o.ExpiredAt = hlc.Max(o.At, genTimestamp.Draw(t, "expired at"))
	}
	want, wantWaits, wantErr := m.scan(o)
	var waits hlc.Timestamp
	expires := int64(0)
	var got []row
	var err error
	page := o
	for pages := 0; ; pages++ {
		if pages > 200 {
			t.Fatalf("scan %+v does not get on", o)
		}
		var bytesSeen int64
		rows := 0
		var result ScanResult
		result, err = Scan(s, page, func(key []byte, v Version) error {
			v.Value = bytes.Clone(v.Value)
			got = append(got, row{string(key), v})
			bytesSeen += int64(len(key) + len(v.Value))
			rows++
			return nil
		})
		if err != nil {
			break
		}
		waits = hlc.Max(waits, result.CommitWaitUntil)
		if result.Expires != 0 && (expires == 0 || result.Expires < expires) {
			expires = result.Expires
		}
		if result.Rows != rows || result.Bytes != bytesSeen {
			t.Fatalf("scan %+v says %+v, emitted %d rows of %d bytes", page, result, rows, bytesSeen)
		}
		if (o.MaxRows > 0 && rows > o.MaxRows) ||
			(o.MaxBytes > 0 && rows > 1 && bytesSeen > o.MaxBytes) {
			t.Fatalf("scan %+v is over its limits: %+v", page, result)
		}
		if o.MaxBytes == 0 {
			count, err := Count(s, page)
			if err != nil || count.Rows != rows || count.More != result.More ||
				!bytes.Equal(count.Resume, result.Resume) {
				t.Fatalf("count %+v: %+v, %v; the scan gave %+v", page, count, err, result)
			}
		}
		if !result.More {
			break
		}
		page.Span = remainder(result, page.Span, page.Reverse)
	}
	if !sameUncertainty(err, wantErr) {
		t.Fatalf("scan %+v: error %v, want %v", o, err, wantErr)
	}
	if err == nil && waits != wantWaits {
		t.Fatalf("scan %+v saw commit waits up to %s, want %s", o, waits, wantWaits)
	}
	if err == nil && !sameRows(got, want) {
		t.Fatalf("scan %+v:\n got %v\nwant %v", o, got, want)
	}
	first := int64(0)
	for _, r := range want {
		if r.v.Expires != 0 && (first == 0 || r.v.Expires < first) {
			first = r.v.Expires
		}
	}
	if err == nil && expires != first {
		t.Fatalf("scan %+v: the first expiry is %d, want %d", o, expires, first)
	}
}

// checkGarbage removes all garbage in a span, call by call, and checks after each that no read at
// or above the threshold has changed; at the end nothing may be left that could go.
func checkGarbage(t *rapid.T, s *engine.State, m model, threshold hlc.Timestamp) {
	span := genSpan.Draw(t, "span")
	limits := GarbageLimits{
		Versions: rapid.IntRange(0, 3).Draw(t, "versions"),
		Bytes:    rapid.Int64Range(0, 40).Draw(t, "bytes"),
		Scanned:  rapid.IntRange(0, 5).Draw(t, "scanned"),
	}
	rest := span
	for calls := 0; ; calls++ {
		if calls > 1000 {
			t.Fatalf("garbage collection of %s does not get on", span)
		}
		result, err := Garbage(s, rest, threshold, limits)
		if err != nil {
			t.Fatal(err)
		}
		checkNamed(t, m, &result, threshold)
		// Any first few of them.
		n := len(result.Versions)
		partial := n > 1 && rapid.IntRange(0, 4).Draw(t, "partial") == 0
		if partial {
			n = rapid.IntRange(1, n).Draw(t, "first")
		}
		b := s.NewBatch()
		if err := Remove(b, result.Versions[:n]); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
		for key, versions := range m {
			for _, at := range append([]hlc.Timestamp{threshold, hlc.MaxTimestamp},
				timestamps(versions)...) {
				if at.Less(threshold) {
					continue
				}
				want, wantFound := m.get([]byte(key), at)
				wantFound = wantFound && want.Kind == KindValue
				got, found, err := Get(s, []byte(key), at)
				found = found && got.Kind == KindValue
				if err != nil || found != wantFound || (found && !sameVersion(got, want)) {
					t.Fatalf("after garbage collection of %s at %s, %q at %s: %v %v %v, want %v %v",
						span, threshold, key, at, got, found, err, want, wantFound)
				}
			}
		}
		if partial {
			continue
		}
		if !result.More {
			break
		}
		rest.Start = result.Resume
	}
	if left, err := Garbage(s, span, threshold, GarbageLimits{}); err != nil ||
		len(left.Versions) > 0 {
		t.Fatalf("garbage is left: %v, %v", left, err)
	}
	// From here on the model is what is stored.
	for key, versions := range m {
		if !span.Contains([]byte(key)) {
			continue
		}
		for i, v := range versions {
			if v.Timestamp.LessEq(threshold) {
				if v.Kind == KindValue &&
					(v.Expires == 0 || threshold.Less(hlc.Timestamp{Wall: v.Expires})) {
					i++
				}
				versions = versions[:i]
				break
			}
		}
		if m[key] = versions; len(versions) == 0 {
			delete(m, key)
		}
	}
}

// checkNamed checks what is said of each version that may go.
func checkNamed(t *rapid.T, m model, result *GarbageResult, threshold hlc.Timestamp) {
	var expired []int
	for i, stateKey := range result.Versions {
		key, ts, err := keys.DecodeVersioned(stateKey)
		if err != nil {
			t.Fatal(err)
		}
		versions := m[string(key)]
		at := slices.IndexFunc(versions, func(v Version) bool { return v.Timestamp == ts })
		if at < 0 {
			continue // the model knows no more of it
		}
		v := versions[at]
		if result.Expiring[i] != (v.Expires != 0) {
			t.Fatalf("%q@%s: expiring %v, and it expires at %d", key, ts, result.Expiring[i], v.Expires)
		}
		if at == 0 && v.Kind == KindValue {
			expired = append(expired, i)
		}
	}
	if !slices.Equal(expired, result.Expired) {
		t.Fatalf("at %s the newest values %v have expired, it says %v",
			threshold, expired, result.Expired)
	}
}

func timestamps(versions []Version) []hlc.Timestamp {
	var all []hlc.Timestamp
	for _, v := range versions {
		all = append(all, v.Timestamp)
	}
	return all
}
