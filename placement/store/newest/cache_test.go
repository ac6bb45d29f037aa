package newest

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func small() *Limits {
	return &Limits{GenerationBytes: 1500, VersionBytes: 400, MinKeys: 4, MaxKeys: 64, Misses: 2}
}

// database is a naive model: what is committed, which scans see, and what was written since.
type database struct {
	committed, written map[string]*storepb.KeyValue
}

func (d *database) at(key string) *storepb.KeyValue {
	kv := d.written[key]
	if kv == nil {
		kv = d.committed[key]
	}
	if kv == nil || kv.Version == 0 {
		return nil
	}
	return kv
}

func (d *database) commit() {
	for key, kv := range d.written {
		d.committed[key] = kv
	}
	d.written = map[string]*storepb.KeyValue{}
}

// weights has the actions of TestCacheModel as often as they are done.
var weights = []int{0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 5}

// TestCacheModel writes, deletes, reads, commits, scans and replaces at random, and compares what
// the cache knows with what there is.
func TestCacheModel(t *testing.T) {
	var fromFilter, fromVersions, scans int
	rapid.Check(t, func(t *rapid.T) {
		c := New(small())
		d := &database{committed: map[string]*storepb.KeyValue{},
			written: map[string]*storepb.KeyValue{}}
		name := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("k%02d", rapid.IntRange(0, 40).Draw(t, "key"))
		})
		var scan *Filling
		at := 0 // the scan has come to that key
		revision := uint64(1)
		actions := []func(){
			func() { // get
				key := name.Draw(t, "key")
				whole := rapid.Bool().Draw(t, "whole")
				kv, known := c.Get([]byte(key), whole)
				want := d.at(key)
				switch {
				case known && (kv == nil) != (want == nil),
					known && whole && kv != want,
					known && kv != nil && (kv.ModRevision != want.ModRevision || kv.Version != want.Version):
					t.Fatalf("Get(%s) = %v; it is %v", key, kv, want)
				case !known:
					c.Read([]byte(key), want, whole)
				case kv == nil:
					fromFilter++
				default:
					fromVersions++
				}
			},
			func() { // put
				key := name.Draw(t, "key")
				revision++
				kv := &storepb.KeyValue{Key: []byte(key), ModRevision: revision, Version: 1,
					Value: bytes.Repeat([]byte{1}, rapid.SampledFrom([]int{0, 10, 500}).Draw(t, "size"))}
				if before := d.at(key); before != nil {
					kv.Version = before.Version + 1
				}
				d.written[key] = kv
				c.Wrote(kv, rapid.Bool().Draw(t, "whole"))
			},
			func() { // delete
				key := name.Draw(t, "key")
				revision++
				if d.at(key) != nil {
					kv := &storepb.KeyValue{Key: []byte(key), ModRevision: revision}
					d.written[key] = kv
					c.Wrote(kv, rapid.Bool().Draw(t, "whole"))
				}
			},
			func() { // commit
				d.commit()
				if f := c.Begin(); f != nil {
					scan, at = f, 0
				}
			},
			func() { // scan
				if scan == nil {
					return
				}
				for n := rapid.IntRange(1, 15).Draw(t, "keys"); n > 0 && at <= 40; n-- {
					key := fmt.Sprintf("k%02d", at)
					if kv := d.committed[key]; kv != nil && kv.Version > 0 {
						scan.Key([]byte(key))
					}
					at++
				}
				if !scan.Added() {
					scan = nil
				} else if at > 40 {
					scan.Done(true)
					scan = nil
					scans++
				}
			},
			func() { // reset
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					d.committed = map[string]*storepb.KeyValue{"k01": {Key: []byte("k01"), Version: 7}}
					d.written = map[string]*storepb.KeyValue{}
					c.Reset()
				}
			},
		}
		for n := rapid.IntRange(1, 400).Draw(t, "actions"); n > 0; n-- {
			actions[rapid.SampledFrom(weights).Draw(t, "action")]()
		}
	})
	if fromFilter == 0 || fromVersions == 0 || scans == 0 {
		t.Errorf("%d answers of filters, %d of versions, %d scans: too few to show anything",
			fromFilter, fromVersions, scans)
	}
}

// TestFilterErrs measures how many absent keys a full filter takes for present: at most 3 %.
func TestFilterErrs(t *testing.T) {
	c := New(nil)
	f := newFilter(100_000)
	for i := range 100_000 {
		f.add(c.hash(fmt.Appendf(nil, "there/%d", i)))
	}
	wrong := 0
	for i := range 100_000 {
		if !f.has(c.hash(fmt.Appendf(nil, "there/%d", i))) {
			t.Fatalf("key %d is in the filter, which says it is not", i)
		}
		if f.has(c.hash(fmt.Appendf(nil, "absent/%d", i))) {
			wrong++
		}
	}
	if wrong > 3000 {
		t.Errorf("%d of 100,000 absent keys are taken for present", wrong)
	}
}

// TestBounds has more written than the limits allow to be kept.
func TestBounds(t *testing.T) {
	c := New(small())
	for i := range 1000 {
		c.Wrote(&storepb.KeyValue{Key: fmt.Appendf(nil, "%d", i), Version: 1,
			Value: make([]byte, i%500)}, i%3 == 0)
		bytes := 0
		for _, g := range []map[uint64]entry{c.young, c.old} {
			for _, e := range g {
				bytes += size(e.kv)
			}
		}
		if bytes > 2*c.limits.GenerationBytes {
			t.Fatalf("%d bytes are kept, the limit is twice %d", bytes, c.limits.GenerationBytes)
		}
	}
}

// scan fills a filter of a cache with all keys, as often as one is wanted.
func scan(c *Cache, keys map[string]bool) (scans int) {
	for {
		f := c.Begin()
		if f == nil {
			return scans
		}
		scans++
		wanted := true
		for key := range keys {
			f.Key([]byte(key))
			if wanted = f.Added(); !wanted {
				break
			}
		}
		f.Done(wanted)
	}
}

// Keys come and go, many more than the largest filter is made for; ten are there at any time.
func TestKeysThatComeAndGo(t *testing.T) {
	c := New(&Limits{GenerationBytes: 1 << 14, VersionBytes: 400, MinKeys: 64, MaxKeys: 1024,
		Misses: 2})
	there := map[string]bool{}
	absent := 0
	for i := range 20_000 {
		scan(c, there)
		key := fmt.Sprint("lock/", i)
		if kv, known := c.Get([]byte(key), false); !known {
			c.Read([]byte(key), nil, false)
		} else if kv == nil && i >= 10_000 {
			absent++
		}
		c.Wrote(&storepb.KeyValue{Key: []byte(key), Version: 1}, false)
		there[key] = true
		if old := fmt.Sprint("lock/", i-10); there[old] {
			delete(there, old)
			c.Wrote(&storepb.KeyValue{Key: []byte(old)}, false)
		}
	}
	if absent < 9_000 {
		t.Errorf("%d of 10,000 new keys were known to be absent", absent)
	}
}

// A scan that meets many keys is given up for one with a larger filter, few times.
func TestManyKeys(t *testing.T) {
	c := New(&Limits{MinKeys: 64, MaxKeys: 1 << 20, GenerationBytes: 1})
	keys := map[string]bool{}
	for i := range 10_000 {
		keys[fmt.Sprint(i)] = true
	}
	if scans := scan(c, keys); scans != 4 {
		t.Errorf("%d scans, want those of filters for 64, 512, 4,096 and 32,768 keys", scans)
	}
	if _, known := c.Get([]byte("absent"), false); !known || c.mu.whole.capacity != 1<<15 {
		t.Errorf("known: %t, with a filter for %d keys", known, c.mu.whole.capacity)
	}
}
